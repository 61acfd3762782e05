"""Describes the machine of a run, and finds out what a stage needs, what the machine lacks, and how to get a GPU.

Libraries are looked up in the import system and in package metadata, not imported: so the harness lists stages at
once, and a broken library fails only the stages that need it.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sysconfig
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from common.blas import blas_library, blas_threads
from common.cache import cache_folder
from common.cpu.cores import usable_cores
from common.cuda import driver
from common.cuda.compile import nvrtc_version
from common.variables import recorded
from ladder.machine.gpu_monitor import GpuMonitor

ROOT = Path(__file__).resolve().parents[2]

LIBRARIES = (
    "numpy", "cupy-cuda12x", "cupy-cuda13x", "cuda-bindings", "cuda-core", "cuda-toolkit", "nvmath-python",
    "cupti-python", "nvidia-cudnn-cu12", "nvidia-cudnn-cu13", "nvidia-nccl-cu12", "nvidia-nccl-cu13", "torch", "triton",
    "nvidia-cutlass-dsl", "jax", "tinygrad", "numba", "scipy", "accelerate", "lightning",
)  # fmt: skip
CPUINFO = Path("/proc/cpuinfo")
UNKNOWN = "unknown"


def _no_device() -> str | None:
    """Why no GPU can be used; None if one can."""
    reason = driver.no_device_reason()
    return f"no CUDA device: {reason}" if reason else None


def _too_few_gpus() -> str | None:
    """Why a stage of several GPUs does not run; None if it does."""
    gpus = len(driver.devices())
    return None if gpus > 1 else f"needs two GPUs; this machine shows {'one' if gpus else 'none'}"


def gpu_too_old() -> tuple[str, str] | None:
    """Why the first GPU is too old for the CUDA that is installed, and the command that helps; None if it is not."""
    for gpu in driver.devices()[:1]:
        for major, oldest in driver.OLDEST_GPU.items():
            if gpu.compute_capability < oldest and libraries([f"cupy-cuda{major}x"]):
                why = f"CUDA {major} needs sm_{oldest[0]}{oldest[1]} or newer, this GPU is {gpu.sm}"
                return why, f"`make ladder CUDA={driver.newest_cuda() or 'cpu'}`"
    return None


def _gpu_too_old() -> str | None:
    """Why nothing compiled by the installed CUDA runs on the first GPU, with the way out; None if it does."""
    too_old = gpu_too_old()
    return too_old and ": ".join(too_old)


def _not_installed(package: str, title: str) -> str | None:
    """Why a package cannot be imported; None if it can."""
    try:
        spec = importlib.util.find_spec(package)
    except ModuleNotFoundError:  # its parent package is missing
        spec = None
    return None if spec else f"{title} is not installed"


def _torch_without_cuda() -> str | None:
    """Why an installed PyTorch cannot use a GPU; None if it can. Only CUDA builds contain a `torch_cuda` library."""
    spec = importlib.util.find_spec("torch")
    folder = Path(spec.origin).parent if spec and spec.origin else Path()
    return None if list(folder.glob("lib/*torch_cuda*")) else "PyTorch is installed without CUDA"


def _with_gpu() -> str | None:
    """Why a stage for machines without a GPU does not run; None if it does."""
    return "for machines without a GPU" if driver.no_device_reason() is None else None


def _no_cpp_compiler() -> str | None:
    """Why PyTorch cannot compile for the CPU; None if it can."""
    named = os.environ.get("CXX", "g++")
    if shutil.which(named) is None:
        return f"needs a C++ compiler: {named} is not on the PATH"
    header = Path(sysconfig.get_paths()["include"]) / "Python.h"
    return None if header.exists() else "needs Python's C headers (python3-dev)"


Check = Callable[[], str | None]
# The first optimiser imports `torch._dynamo`, even without compiling.
TORCH = ("torch", "torch._dynamo")
# For each need: the checks that must pass, and the modules that a stage with this need imports.
NEEDS: dict[str, tuple[tuple[Check, ...], tuple[str, ...]]] = {
    "cuda": (
        (
            _no_device,
            _gpu_too_old,
            partial(_not_installed, "cupy", "CuPy"),
            partial(_not_installed, "cuda.core", "cuda-core"),
        ),
        ("cupy", "cuda.core"),
    ),
    "cublas": ((partial(_not_installed, "nvmath", "nvmath-python"),), ("nvmath.bindings.cublasLt",)),
    "nccl": ((partial(_not_installed, "nvidia.nccl", "NCCL"),), ()),
    "cudnn": ((partial(_not_installed, "nvidia.cudnn", "cuDNN"),), ()),
    "numba": ((), ("numba", "scipy.linalg.cython_blas")),  # which set-up always installs
    "torch": ((partial(_not_installed, "torch", "PyTorch"),), TORCH),
    "torch-cuda": (
        (_no_device, _gpu_too_old, partial(_not_installed, "torch", "PyTorch"), _torch_without_cuda),
        (*TORCH, "torch._inductor.compile_fx"),  # the compiler takes as long to import as the rest
    ),
    "triton": ((partial(_not_installed, "triton", "Triton"),), ("triton",)),
    "cute": ((partial(_not_installed, "cutlass", "CuTe DSL"),), ()),  # slow to import; its code is kept on disk
    "tinygrad": ((partial(_not_installed, "tinygrad", "tinygrad"),), ("tinygrad",)),
    "gpu": ((_no_device,), ()),
    "two-gpus": ((_too_few_gpus,), ()),
    "no-gpu": ((_with_gpu,), ()),
    "c++": ((_no_cpp_compiler,), ()),
    "jax": ((partial(_not_installed, "jax", "JAX"),), ("jax",)),
}


def missing(needs: Iterable[str]) -> str | None:
    """Why a stage with these needs cannot run here, in one short line; None if it can.

    A need is a key of `NEEDS` or the oldest sufficient architecture, such as `sm_90`; any other raises ValueError.
    """
    for need in needs:
        for check in _checks(need):
            if reason := check():
                return reason
    return None


def import_packages(needs: Iterable[str]) -> None:
    """Import the modules that a stage with these needs imports, so that its preparation time excludes imports.

    PyTorch's compiler and tinygrad, which read the names of their caches when imported, keep their code beside ours.
    The former asks for a GPU then: without NVML it would initialise CUDA, after which a forked process cannot use the
    device.
    """
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(cache_folder("inductor")))
    os.environ.pop("PYTHON", None)  # which `make PYTHON=...` exports, and tinygrad reads as a number
    os.environ.setdefault("CACHEDB", str(cache_folder("tinygrad") / "cache.db"))
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
    for need in needs:
        for module in NEEDS[need][1] if need in NEEDS else ():
            importlib.import_module(module)


def _checks(need: str) -> tuple[Check, ...]:
    """The checks of a need; raises ValueError for an unknown one."""
    if need in NEEDS:
        return NEEDS[need][0]
    if re.fullmatch(r"sm_\d{2,3}", need):
        return (_no_device, partial(_older_than, need))
    raise ValueError(f"need {need!r}: unknown; choose from {', '.join(NEEDS)} and sm_NN")


def _older_than(architecture: str) -> str | None:
    """Why the first GPU is too old; None if it is not."""
    gpu = driver.devices()[0]
    least = divmod(int(architecture.removeprefix("sm_")), 10)
    return None if gpu.compute_capability >= least else f"needs {architecture} or newer, this GPU is {gpu.sm}"


def describe() -> dict[str, Any]:
    """The machine and its libraries as plain data, without host name, user name or paths."""
    commit, dirty = git_state()
    with GpuMonitor() as monitor:
        # Under keys of their own: they may change while the rest of the GPU's data does not.
        clocks, untold = monitor.clocks(), monitor.refused()
    return {
        "gpu": _describe_gpu(),
        **({"gpu_clocks": clocks} if clocks else {}),
        **({"gpu_does_not_tell": untold} if untold else {}),
        "cpu": {"model": cpu_name(), "cores_usable": cores_usable(), "machine": platform.machine()},
        "memory_mib": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20,
        "system": {"os": _os_name(), "kernel": f"{platform.system()} {platform.release().split('-')[0]}"},
        "python": platform.python_version(),
        "libraries": libraries(LIBRARIES) | compiler(),
        "variables": recorded(),
        "blas": {"library": blas_library(), "threads": blas_threads() or UNKNOWN},
        "code": {"git_commit": commit, "uncommitted_changes": dirty},
    }


def libraries(names: Iterable[str]) -> dict[str, str]:
    """The versions of the installed ones among these packages, by their names on PyPI."""
    from importlib import metadata  # late: it takes longer to import than this module

    versions = {}
    for name in names:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions


def compiler() -> dict[str, str]:
    """The version that the loaded NVRTC reports; several may be installed, and package metadata does not say which."""
    try:
        return {"NVRTC": "{}.{}".format(*nvrtc_version())}
    except (ImportError, RuntimeError):
        return {}


def git_state(root: Path = ROOT) -> tuple[str | None, bool | None]:
    """The commit of the code and whether files differ from it; (None, None) outside the project's own repository.

    `$LADDER_COMMIT` names the commit of a tree that was copied without its repository.
    """
    if named := os.environ.get("LADDER_COMMIT"):
        return named, None
    try:
        top = _git(root, "rev-parse", "--show-toplevel")
        if Path(top).resolve() != root.resolve():  # unpacked inside another project's repository
            return None, None
        return _git(root, "rev-parse", "HEAD"), bool(_git(root, "status", "--porcelain"))
    except (OSError, subprocess.SubprocessError):
        return None, None


def git_refusal(root: Path = ROOT) -> str | None:
    """Why git names no commit of a repository of ours, with the way out; None if it does not refuse."""
    try:
        _git(root, "rev-parse", "HEAD")
    except subprocess.CalledProcessError as error:
        if "dubious ownership" in error.stderr:  # as root in a container, in a folder of the host's user
            way_out = f"`git config --global --add safe.directory {root}`"
            return f"git refuses a folder of another user (dubious ownership), so no commit is recorded: {way_out}"
    except (OSError, subprocess.SubprocessError):
        pass
    return None


def cores_usable() -> int:
    """The number of cores that this process may keep busy, by affinity and control groups."""
    return usable_cores()


def _git(root: Path, *arguments: str) -> str:
    """The output of a git command; raises OSError without git, SubprocessError if it fails."""
    return _told("git", "-C", str(root), *arguments).strip()


def _told(*command: str) -> str:
    """What a command prints; raises OSError without it, SubprocessError if it fails."""
    plain = {**os.environ, "LC_ALL": "C"}  # its words and its errors are read
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10, env=plain).stdout


def _os_name() -> str:
    """The name and version of the Linux distribution."""
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", UNKNOWN)
    except OSError:
        return platform.system() or UNKNOWN


def _describe_gpu() -> dict[str, Any]:
    """The first visible GPU, or why there is none."""
    gpus = driver.devices()
    if not gpus:
        return {"none": driver.no_device_reason()}
    supported = driver.driver_version()
    with GpuMonitor() as monitor:
        return {
            "name": gpus[0].name,
            "compute_capability": "{}.{}".format(*gpus[0].compute_capability),
            "memory_mib": gpus[0].total_memory >> 20,
            "visible_gpus": len(gpus),
            "supports_cuda": "{}.{}".format(*supported) if supported else UNKNOWN,
            **monitor.describe(),
        }


def cpu_name(cpuinfo: Path = CPUINFO) -> str:
    """The processor's model name; on ARM by lscpu its kinds of core, as `ARM Cortex-X925 + ARM Cortex-A725`."""
    with suppress(OSError):
        if named := re.search(r"^model name\s*: (.+)$", cpuinfo.read_text(), re.MULTILINE):
            return named[1]
    with suppress(OSError, subprocess.SubprocessError):
        told = _told("lscpu")
        makers, models = (
            re.findall(rf"^ *{field}: *(.+)$", told, re.MULTILINE) for field in ("Vendor ID", "Model name")
        )
        if models:
            return " + ".join(" ".join([*makers[:1], model]) for model in dict.fromkeys(models))
    return platform.processor() or UNKNOWN


PCI_DEVICES = Path("/sys/bus/pci/devices")
NVIDIA, DISPLAY = "0x10de", "0x03"  # a device's vendor, and the class that GPUs belong to
OLDEST_DRIVER = 525


def how_to_get_gpu() -> str | None:
    """What to do for a usable GPU, a sentence with its command but no full stop; None if there is one."""
    if driver.no_device_reason() is None:
        return None
    if remedy := driver.no_device_remedy():
        return remedy
    if driver.driver_version() is not None:
        if "CUDA_VISIBLE_DEVICES" in os.environ:
            return "To show its GPUs: `unset CUDA_VISIBLE_DEVICES`"
        return "To see what the driver sees: `nvidia-smi`"
    if has_nvidia_gpu():
        return (
            f"This machine has an NVIDIA GPU; install its driver, {OLDEST_DRIVER} or newer "
            "(Ubuntu: `sudo ubuntu-drivers install`), or start the container with `--gpus all`"
        )
    return f"This machine has no NVIDIA GPU; on one with a GPU and driver {OLDEST_DRIVER} or newer: `make ladder`"


def has_nvidia_gpu() -> bool:
    """Whether an NVIDIA GPU is on the PCI bus, which a container shows as well."""
    for device in PCI_DEVICES.glob("*"):
        try:
            vendor, kind = ((device / name).read_text(encoding="ascii") for name in ("vendor", "class"))
        except (OSError, ValueError):
            continue
        if vendor.strip() == NVIDIA and kind.startswith(DISPLAY):
            return True
    return False
