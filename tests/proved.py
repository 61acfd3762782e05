"""Tests of stages' code by itself: their outcome follows from sources and compilers, so a change of these runs them.

`make test-kernels` keeps the hashes of what they passed on in `tests/kernels/proved.txt`. Of Python only the code
counts, without docstrings and comments.
"""

from __future__ import annotations

import ast
import hashlib
import os
import platform
import subprocess
from functools import cache
from importlib.metadata import distributions
from pathlib import Path

import numpy as np

from common.cuda.compile import nvrtc_version

ROOT = Path(__file__).parents[1]
# Kernels by themselves take minutes, and see no file of the harness; whole rungs, and references whose compilers take
# minutes, are judged by its gates.
GROUPS = {
    "kernels": ("tests/cpu_cuda", "tests/kernels", "tests/stages/persistent/test_persistent_grid.py"),
    "rungs": (
        "tests/stages/devices/test_ddp_halves.py",
        "tests/stages/engine/test_parts_on_cpu.py",
        "tests/stages/large_batch",
        "tests/stages/persistent",
        "tests/stages/shapes",
        "tests/stages/streamed",
        "tests/stages/tiles",
    ),
    "references": (
        "tests/stages/cpu",
        "tests/stages/devices/test_references.py",
        "tests/stages/languages",
        "tests/stages/references/test_jax_apart.py",
        "tests/stages/references/test_jax_waits.py",
        "tests/stages/references/test_references.py",
        "tests/stages/references/test_threads.py",
        "tests/stages/references/test_torch_choices.py",
    ),
}
# That compile or compute the references, for this CPU or for a GPU.
PACKAGES = ("jax", "jax-cuda12-plugin", "jax-cuda13-plugin", "jaxlib", "numba", "scipy", "torch", "triton")
TESTS = tuple(name for names in GROUPS.values() for name in names)
LOADED = ("common", "stages", "tests/cpu_cuda", "tests/kernels")  # whole folders, since some is loaded by name
SUFFIXES = (".py", ".cu", ".cuh", ".cpp", ".h", ".json")
KEPT = ROOT / "tests" / "kernels" / "proved.txt"
REASON = "passed before on the same sources and compilers; remove tests/kernels/proved.txt to run them"


@cache
def group_of(path: Path) -> str | None:
    """The group of a test file; None if it is none of these."""
    groups = (group for group, names in GROUPS.items() if any(path.is_relative_to(ROOT / name) for name in names))
    return next(groups, None)


def passed_before() -> set[str]:
    """The groups that passed on the same sources and compilers, and with the same random numbers."""
    kept = KEPT.read_text().splitlines() if KEPT.exists() and "LADDER_TEST_SEED" not in os.environ else []
    return {group for group in GROUPS if _line(group) in kept}


def keep() -> None:
    """Keep that they all pass."""
    KEPT.write_text("".join(f"{_line(group)}\n" for group in GROUPS))


def _line(group: str) -> str:
    return f"{group} {current_hash(group)}"


@cache
def current_hash(group: str) -> str:
    """The hash of a group's sources, by name, and of the compilers' versions."""
    compilers = [platform.machine(), np.__version__, _gcc(), _nvrtc()]
    if group == "references":
        compilers += [platform.python_version(), _cpu(), *map(_version, PACKAGES)]
    hashed = hashlib.sha256("\0".join(compilers).encode())
    for path in sorted(sources(group)):
        hashed.update(f"\0{path.relative_to(ROOT)}\0".encode() + _read(path)[0])
    return hashed.hexdigest()


def sources(group: str) -> set[Path]:
    """Its tests, the folders in `LOADED`, and all that these import."""
    found, new = set[Path](), {path for name in (*LOADED, *GROUPS[group]) for path in _files(ROOT / name)}
    while new:
        found |= new
        new = {path for file in new for path in _read(file)[1]} - found
    return found


def _files(path: Path) -> list[Path]:
    return [file for file in path.rglob("*") if file.suffix in SUFFIXES] if path.is_dir() else [path]


@cache
def _read(path: Path) -> tuple[bytes, set[Path]]:
    """A hash of a file, of Python without docstrings and comments; the files of this project that it imports."""
    if path.suffix != ".py":
        return hashlib.sha256(path.read_bytes()).digest(), set()
    module, imported = ast.parse(path.read_bytes()), set[str]()
    for node in ast.walk(module):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node, clean=False):
            node.body = node.body[1:]
        elif isinstance(node, ast.ImportFrom):
            imported |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
    return hashlib.sha256(ast.dump(module).encode()).digest(), {file for name in imported for file in _modules(name)}


@cache
def _modules(name: str) -> list[Path]:
    """The files of `package.module.attribute`: of the module, and of its packages; none of another project's."""
    parts = name.split(".")
    places = [ROOT.joinpath(*parts[:length]) for length in range(1, len(parts) + 1)]
    files = (file for place in places for file in (place.with_suffix(".py"), place / "__init__.py"))
    return [file for file in files if file.is_file()]


def _cpu() -> str:
    """The CPU's model, as Linux names it: compilers choose its instructions."""
    info = Path("/proc/cpuinfo")
    return info.read_text().partition("model name")[2].partition("\n")[0] if info.exists() else ""


def _version(package: str) -> str:
    return next((one.version for one in distributions(name=package)), "none")


@cache
def _gcc() -> str:
    try:
        return subprocess.run(["g++", "--version"], capture_output=True, text=True, check=True).stdout.splitlines()[0]
    except (OSError, subprocess.CalledProcessError):
        return "none"


@cache
def _nvrtc() -> str:
    try:
        return str(nvrtc_version())
    except (ImportError, RuntimeError):
        return "none"
