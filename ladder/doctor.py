"""The findings of `doctor`: everything that the ladder can use, whether it is here, and the command that adds it."""

from __future__ import annotations

import operator
import os
import platform
import re
import tomllib
from typing import NamedTuple

from common.cache import at_home, cache_folder, cache_obstacle, cut_files
from common.cuda import driver
from common.data.download import read_cache
from common.data.idx_folder import RANKS, read_idx_folder
from common.errors import UsageError
from ladder.machine.environment import (
    OLDEST_DRIVER,
    ROOT,
    git_refusal,
    gpu_too_old,
    has_nvidia_gpu,
    how_to_get_gpu,
    libraries,
)
from ladder.machine.gpu_monitor import GpuMonitor
from ladder.profile import nsys

CUPY_WHEELS = ("cupy-cuda12x", "cupy-cuda13x")


class Finding(NamedTuple):
    """One row: a thing, the state in which it was found, and advice if something is wrong."""

    what: str
    found: str
    advice: str = ""
    optional: bool = False  # nothing is wrong without it


def doctor() -> list[Finding]:
    """All findings, from the interpreter to the data and the profiler."""
    findings = [
        Finding("Python", platform.python_version()),
        *_gpus(),
        *_packages(),
        *_cupy_conflicts(),
        *_git(),
        *_cache(),
        _data(),
        _nsys(),
    ]
    return [_readiness(findings), *findings]


def _readiness(findings: list[Finding]) -> Finding:
    """What these findings suffice for."""
    without_gpu = driver.no_device_reason() is not None
    of_gpu = ("NVIDIA driver", "GPU") if without_gpu else ()  # the CPU ladder runs without them
    if any(finding.advice and not finding.optional and finding.what not in of_gpu for finding in findings):
        return Finding("ladder", "not ready", "mend what is marked with ! below")
    if without_gpu:
        return Finding("ladder", "ready for the CPU ladder (`--stages cpu`)")
    return Finding("ladder", "ready (`--stages all`)")


def _gpus() -> list[Finding]:
    """The driver and the GPUs that it shows."""
    version = driver.driver_version()
    if version is None:
        why = driver.no_device_reason() or "unusable"
        return [Finding("NVIDIA driver", why, how_to_get_gpu() or "", optional=not has_nvidia_gpu())]
    old = f"too old for CUDA 12: update it to {OLDEST_DRIVER} or newer" if version < (12, 0) else ""
    rows = [Finding("NVIDIA driver", f"supports CUDA {version[0]}.{version[1]}", old)]
    for index, gpu in enumerate(driver.devices()):
        rows.append(Finding(f"GPU {index}", f"{gpu.name}, {gpu.sm}, {gpu.total_memory >> 20} MiB"))
    with GpuMonitor() as monitor:
        if untold := monitor.refused():
            rows.append(
                Finding("NVML", f"does not report {', '.join(untold)}", "a run cannot see these", optional=True)
            )
    if reason := driver.no_device_reason():
        rows.append(Finding("GPU", f"none: {reason}", how_to_get_gpu() or ""))
    return rows


def _packages() -> list[Finding]:
    """The packages that set-up would install on this machine."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)["project"]
    wanted = dict.fromkeys(project["dependencies"], ("make ladder", False))
    for extra, command in _extras():
        for requirement in project["optional-dependencies"][extra]:
            wanted.setdefault(requirement, (command, driver.no_device_reason() is not None))
    rows = []
    for requirement, (command, optional) in wanted.items():
        name = re.split(r"[^\w.-]", requirement, maxsplit=1)[0]
        version = libraries([name]).get(name)
        if version and is_within(version, requirement):
            rows.append(Finding(name, version))
            continue
        advice = f"`{'rm -r .venv && ' if version else ''}{command}`"  # set-up takes its part for done
        if "TORCH" not in command:  # plain pip would install PyTorch with gigabytes of CUDA
            advice += f", or `python -m pip install '{requirement}'`"
        rows.append(Finding(name, f"{version}, not {requirement}" if version else "missing", advice, optional))
    return rows


def is_within(version: str, requirement: str) -> bool:
    """Whether a version is within the bounds of a requirement such as `numpy>=2,<2.6`."""
    holds = {">=": operator.ge, "<": operator.lt, "==": operator.eq}
    bounds = [(holds[how], _numbers(text)) for how, text in re.findall(r"(>=|<|==)([\d.]+)", requirement)]
    number = [*_numbers(version), 0, 0, 0]
    return all(holds(number[: len(bound)], bound) for holds, bound in bounds)


def _numbers(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", version.partition("+")[0])]


def _extras() -> list[tuple[str, str]]:
    """The extras that fit this machine, each with the command that adds it."""
    major = _cuda_major()
    if major is None:
        return [("torch-cpu", "make ladder TORCH=1"), ("jax-cpu", "make ladder")]
    return [(f"{extra}{major}", f"make ladder CUDA={major}") for extra in ("cuda", "torch-cuda", "jax-cuda")]


def _cuda_major() -> int | None:
    """The CUDA version that packages should be for: the installed CuPy's, if driver and GPU take it."""
    newest, installed = driver.newest_cuda(), libraries(CUPY_WHEELS)
    return 12 if newest and installed and "cupy-cuda13x" not in installed else newest


def _cupy_conflicts() -> list[Finding]:
    """CuPy wheels that overwrite each other, or that are too new for the driver or the GPU."""
    installed = libraries(CUPY_WHEELS)
    major = _cuda_major()
    if len(installed) > 1:
        repair = f"rm -r .venv && make ladder{f' CUDA={major}' if major else ''}"
        return [Finding("CuPy", f"{' and '.join(installed)} install the same files", f"`{repair}`")]
    if too_old := gpu_too_old():
        return [Finding("CuPy", *too_old)]
    if "cupy-cuda13x" in installed and major == 12:
        return [Finding("CuPy", "cupy-cuda13x, but the driver is older than CUDA 13", "`make ladder CUDA=12`")]
    return []


def _git() -> list[Finding]:
    """A git that refuses to name the commit."""
    why, _, way_out = (git_refusal() or "").partition(": ")
    return [Finding("git", why, way_out, optional=True)] if why else []


def _cache() -> list[Finding]:
    """A cache that cannot be written to, and files in it that were cut off."""
    advice = "each run compiles anew, in its temporary folder; LADDER_CACHE_DIR names another cache"
    obstacles = [Finding("cache", found, advice, optional=True) for found in [cache_obstacle()] if found]
    cut = (Finding("cache", f"{file} is cut off", "the next run removes it", optional=True) for file in cut_files())
    return [*obstacles, *cut]


def _data() -> Finding:
    """The source of the images, read and checked as in a run."""
    own = os.environ.get("LADDER_DATA_DIR")
    if own:
        try:
            read_idx_folder(at_home(own, "$LADDER_DATA_DIR"))
        except UsageError as error:
            return Finding("data", f"$LADDER_DATA_DIR cannot be used: {error}", "`unset LADDER_DATA_DIR` for MNIST")
        return Finding("data", f"$LADDER_DATA_DIR, {own}")
    cache = cache_folder("mnist")
    if len(read_cache(cache)) == len(RANKS):
        return Finding("data", f"MNIST in the cache, {cache}")
    advice = "the first run downloads MNIST; without a network, name a folder with its four files: --data-dir FOLDER"
    return Finding("data", f"MNIST is not in the cache, {cache}", advice, optional=True)


def _nsys() -> Finding:
    """NVIDIA's profiler nsys."""
    try:
        path = nsys.find()
    except UsageError as error:
        return Finding("nsys", str(error), "only profiling on a GPU needs it", optional=True)
    if path is None:
        advice = f"only profiling on a GPU needs it; {nsys.WHERE_TO_GET_IT}"
        return Finding("nsys", "not found", advice, optional=True)
    return Finding("nsys", f"{nsys.nsys_version(path)}, {path}", "")
