"""The machine that a run happens on: what it has, and what a stage would miss on it.

Whether a library is there is asked of the import system and of package metadata, without importing it: the harness
lists stages in a moment, and a broken library fails only the stages that need it.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import os
import platform
import re
import subprocess
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

from common.blas import blas_library, blas_threads
from common.cuda import driver
from common.cuda.compile import nvrtc_version
from ladder.machine.gpu_monitor import GpuMonitor

ROOT = Path(__file__).resolve().parents[2]
UNKNOWN = "unknown"

LIBRARIES = (
    "numpy", "cupy-cuda12x", "cupy-cuda13x", "cuda-bindings", "cuda-core", "cuda-toolkit", "nvmath-python",
    "cupti-python", "nvidia-cudnn-cu12", "nvidia-cudnn-cu13", "torch", "jax",
)  # fmt: skip


def _no_device() -> str | None:
    """Why there is no GPU for a stage."""
    reason = driver.no_device_reason()
    return f"no CUDA device: {reason}" if reason else None


def _not_installed(package: str, title: str) -> str | None:
    """Why a package cannot be imported."""
    try:
        found = importlib.util.find_spec(package)
    except ModuleNotFoundError:  # of the package that it lies in
        found = None
    return None if found else f"{title} is not installed"


def _torch_without_cuda() -> str | None:
    """Why PyTorch, which is there, cannot use a GPU: only a build for CUDA has that library of its own."""
    found = importlib.util.find_spec("torch")
    folder = Path(found.origin).parent if found and found.origin else Path()
    return None if list(folder.glob("lib/*torch_cuda*")) else "PyTorch is installed without CUDA"


Check = Callable[[], str | None]
# The compiler's front, which the first optimiser imports, even where nothing is compiled. What comes behind it
# initialises CUDA when it is imported, and no fork could use a device then.
TORCH = ("torch", "torch._dynamo")
# Each need with the checks that have to pass, and with the modules that a stage with it will import.
NEEDS: dict[str, tuple[tuple[Check, ...], tuple[str, ...]]] = {
    "cuda": (
        (_no_device, partial(_not_installed, "cupy", "CuPy"), partial(_not_installed, "cuda.core", "cuda-core")),
        ("cupy", "cuda.core"),
    ),
    "cublas": ((partial(_not_installed, "nvmath", "nvmath-python"),), ("nvmath.bindings.cublasLt",)),
    "cudnn": ((partial(_not_installed, "nvidia.cudnn", "cuDNN"),), ()),
    "torch": ((partial(_not_installed, "torch", "PyTorch"),), TORCH),
    "torch-cuda": ((_no_device, partial(_not_installed, "torch", "PyTorch"), _torch_without_cuda), TORCH),
    "jax": ((partial(_not_installed, "jax", "JAX"),), ("jax",)),
}


def missing(needs: Iterable[str]) -> str | None:
    """Why a stage with these needs cannot run here, as one short line; None when it can.

    A need is a key of `NEEDS`, or the oldest architecture that will do, such as `sm_90`. Raises ValueError for another.
    """
    for need in needs:
        for check in _checks(need):
            if reason := check():
                return reason
    return None


def import_packages(needs: Iterable[str]) -> None:
    """Import what a stage with these needs is going to import, so that its preparation is timed without that."""
    for need in needs:
        for module in NEEDS[need][1] if need in NEEDS else ():
            importlib.import_module(module)


def _checks(need: str) -> tuple[Check, ...]:
    """The checks behind a need."""
    if need in NEEDS:
        return NEEDS[need][0]
    if re.fullmatch(r"sm_\d{2,3}", need):
        return (_no_device, partial(_older_than, need))
    raise ValueError(f"need {need!r}: known are {', '.join(NEEDS)} and sm_NN")


def _older_than(architecture: str) -> str | None:
    """Why the first GPU is too old."""
    gpu = driver.devices()[0]
    least = divmod(int(architecture.removeprefix("sm_")), 10)
    return None if gpu.compute_capability >= least else f"needs {architecture} or newer, this GPU is {gpu.sm}"


def describe() -> dict[str, Any]:
    """The machine and its libraries as plain data, with nothing in it that names the machine or its user."""
    commit, dirty = git_state()
    with GpuMonitor() as monitor:
        clocks = monitor.clocks()  # apart from the GPU, which stays the same
    return {
        "gpu": _describe_gpu(),
        **({"gpu_clocks": clocks} if clocks else {}),
        "cpu": {"model": _cpu_model(), "cores_usable": cores_usable(), "machine": platform.machine()},
        "memory_mib": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20,
        "system": {"os": _os_name(), "kernel": f"{platform.system()} {platform.release().split('-')[0]}"},
        "python": platform.python_version(),
        "libraries": libraries(LIBRARIES) | compiler(),
        "blas": {"library": blas_library(), "threads": blas_threads() or UNKNOWN},
        "code": {"git_commit": commit, "uncommitted_changes": dirty},
    }


def libraries(names: Iterable[str]) -> dict[str, str]:
    """The versions of those packages that are installed, by the names that pip knows them by."""
    found = {}
    for name in names:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def compiler() -> dict[str, str]:
    """The NVRTC that compiles the kernels, by its own account: which of several that are installed is loaded varies."""
    try:
        return {"NVRTC": "{}.{}".format(*nvrtc_version())}
    except (ImportError, RuntimeError):
        return {}


def git_state(root: Path = ROOT) -> tuple[str | None, bool | None]:
    """The commit of the code and whether files differ from it; (None, None) outside a repository of its own.

    `$LADDER_COMMIT` names the commit of a tree that was carried somewhere without its repository, or with another's.
    """
    if carried := os.environ.get("LADDER_COMMIT"):
        return carried, None
    try:
        top = _git(root, "rev-parse", "--show-toplevel")
        if Path(top).resolve() != root.resolve():  # unpacked somewhere inside another project
            return None, None
        return _git(root, "rev-parse", "HEAD"), bool(_git(root, "status", "--porcelain"))
    except (OSError, subprocess.SubprocessError):
        return None, None


def cores_usable() -> int:
    """The cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _git(root: Path, *arguments: str) -> str:
    """What git answers; raises OSError without git and SubprocessError where it fails."""
    command = ["git", "-C", str(root), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()


def _cpu_model() -> str:
    """The processor's own name for itself."""
    try:
        named = re.search(r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        named = None
    return named[1] if named else platform.processor() or UNKNOWN


def _os_name() -> str:
    """The distribution's name and version."""
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", UNKNOWN)
    except OSError:
        return platform.system() or UNKNOWN


def _describe_gpu() -> dict[str, Any]:
    """The first visible GPU, or why there is none."""
    found = driver.devices()
    if not found:
        return {"none": driver.no_device_reason()}
    supported = driver.driver_version()
    with GpuMonitor() as monitor:
        return {
            "name": found[0].name,
            "compute_capability": "{}.{}".format(*found[0].compute_capability),
            "memory_mib": found[0].total_memory >> 20,
            "visible_gpus": len(found),
            "supports_cuda": "{}.{}".format(*supported) if supported else UNKNOWN,
            **monitor.describe(),
        }
