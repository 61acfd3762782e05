"""Where a run's numbers come from, in a line: the GPU and its driver, the date, the commit, the libraries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ladder.results import Results
from reports.markdown import line

# A library's name, the packages that it comes as, and how the names of the stages begin that use it: "" is any rung.
LIBRARIES = (
    ("CUDA", ("cuda-toolkit",), ""),
    ("NVRTC", ("NVRTC",), ""),
    ("CuPy", ("cupy-cuda12x", "cupy-cuda13x"), ""),
    ("PyTorch", ("torch",), "torch-"),
    ("JAX", ("jax",), "jax-"),
)
COMMIT_DIGITS = 10


def provenance(results: Results) -> str:
    """Such as `NVIDIA H200, driver 580.65; recorded 2026-11-20, commit 0123456789; CUDA 13.0.2, PyTorch 2.11.0`.

    Only libraries that a stage of the run used are named; what was not recorded is left out.
    """
    gpu, code = (_part(results.environment, name) for name in ("gpu", "code"))
    machine = [gpu_name(results) or "no GPU"]
    if gpu.get("driver"):
        machine.append(f"driver {gpu['driver']}")
    when = [f"recorded {results.created.partition('T')[0]}"]
    if code.get("git_commit"):
        changes = code.get("uncommitted_changes")
        tree = " (tree not checked)" if changes is None else " with uncommitted changes" if changes else ""
        when.append(f"commit {code['git_commit'][:COMMIT_DIGITS]}{tree}")
    parts = (machine, when, _versions(results))
    return line("; ".join(", ".join(part) for part in parts if part)) + "."


def gpu_name(results: Results) -> str:
    """The GPU's name as its driver gives it; empty where there was none."""
    return str(_part(results.environment, "gpu").get("name") or "")


def _versions(results: Results) -> list[str]:
    installed = _part(results.environment, "libraries")
    passed = [stage for stage in results.stages if stage.status == "passed"]
    found = []
    for title, packages, prefix in LIBRARIES:
        used = any(stage.name.startswith(prefix) if prefix else stage.group != "reference" for stage in passed)
        version = next((installed[package] for package in packages if package in installed), None)
        if used and version is not None:
            found.append(f"{title} {version}")
    return found


def _part(environment: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = environment.get(name)
    return part if isinstance(part, Mapping) else {}
