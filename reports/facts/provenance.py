"""A run's origin in one line: GPU and driver, date, commit, libraries."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from ladder.records.run import Results, StageResult
from ladder.records.torch_run import TorchResults
from reports.facts.grouped import grouped
from reports.facts.numbers import line

Uses = Callable[[StageResult], bool]


class Library(NamedTuple):
    """A library by its name in reports and by its packages, and which stages use it."""

    title: str
    packages: tuple[str, ...]
    used_by: Uses


def _is_gpu_rung(stage: StageResult) -> bool:
    return stage.group != "reference" and stage.device == "gpu"


# CUDA's packages may be installed where no GPU is, so that a library counts only with a stage that used it.
LIBRARIES = (
    Library("CUDA", ("cuda-toolkit",), _is_gpu_rung),
    Library("NVRTC", ("NVRTC",), _is_gpu_rung),
    Library("CuPy", ("cupy-cuda12x", "cupy-cuda13x"), _is_gpu_rung),
    Library("Numba", ("numba",), lambda stage: stage.group == "cpu"),
    Library("PyTorch", ("torch",), lambda stage: stage.name.startswith("torch-")),
    Library("JAX", ("jax",), lambda stage: stage.name.startswith("jax-")),
)
COMMIT_DIGITS = 10


def provenance(results: Results) -> str:
    """A line like `NVIDIA H200, driver 580.65; recorded 2026-11-20, commit 0123456789; CUDA 13.0.2, PyTorch 2.11.0`.

    It names only libraries that a passed stage used, and leaves out what the run did not record.
    """
    ((origin, _),) = origins([results])
    return origin


def recorded(results: Results) -> str:
    """The same without the libraries: `NVIDIA H200, driver 580.65; recorded 2026-11-20, commit 0123456789`."""
    return line("; ".join(filter(None, (_machine(results), when(results)))))


def origins(runs: Iterable[Results]) -> list[tuple[str, list[Results]]]:
    """Each origin with its runs; runs of one kind of GPU, driver, day and commit share one."""
    groups = []
    for origin, alike in grouped((recorded(run), run) for run in runs).items():
        used = [version for run in alike for version in _versions(run)]
        versions = dict.fromkeys(told for known in LIBRARIES for told in used if told.split()[0] == known.title)
        groups.append((line("; ".join(filter(None, (origin, ", ".join(versions))))) + ".", alike))
    return groups


def machine_name(results: Results | TorchResults) -> str:
    """The GPU's name; without a GPU the processor's and its cores: `AMD EPYC, 2 cores, no GPU`."""
    cpu = part(results.environment, "cpu")
    cores = f"{cpu['cores_usable']} cores" if cpu.get("cores_usable") else ""
    return gpu_name(results) or ", ".join(filter(None, (str(cpu.get("model") or ""), cores, "no GPU")))


def _machine(results: Results) -> str:
    if not (name := gpus_name(results)):
        return machine_name(results)
    driver, cpu = (part(results.environment, of).get(what) for of, what in (("gpu", "driver"), ("cpu", "model")))
    return f"{name}{f', driver {driver}' if driver else ''}{f', host {cpu}' if cpu else ''}"


def when(results: Results | TorchResults) -> str:
    """The day and the commit: `recorded 2026-11-20, commit 0123456789`."""
    day = f"recorded {results.created.partition('T')[0]}"
    if not commit(results):
        return day
    changes = part(results.environment, "code").get("uncommitted_changes")
    tree = " (copy without git)" if changes is None else " with uncommitted changes" if changes else ""
    return f"{day}, commit {commit(results)[:COMMIT_DIGITS]}{tree}"


def commit(results: Results | TorchResults) -> str:
    """The commit of the code that measured a run; empty if it is not known."""
    return str(part(results.environment, "code").get("git_commit") or "")


def gpu_name(results: Results | TorchResults) -> str:
    """The GPU's name as its driver reports it; empty without a GPU."""
    return str(part(results.environment, "gpu").get("name") or "")


def gpus_name(results: Results) -> str:
    """The GPU's name, of several that train together with their number: `2 x NVIDIA H200`; empty without a GPU."""
    name, gpus = gpu_name(results), results.problem.gpus
    return f"{gpus} x {name}" if name and gpus > 1 else name


def _versions(results: Results) -> list[str]:
    installed = part(results.environment, "libraries")
    passed = [stage for stage in results.stages if stage.status == "passed"]
    versions = []
    for library in LIBRARIES:
        version = next((installed[package] for package in library.packages if package in installed), None)
        if version is not None and any(map(library.used_by, passed)):
            versions.append(f"{library.title} {version}")
    return versions


def part(environment: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A part of what is known of a machine; empty if it was not recorded."""
    part = environment.get(name)
    return part if isinstance(part, Mapping) else {}
