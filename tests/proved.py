"""Tests of kernels on the CPU: their outcome follows from sources and compilers, so a change of those makes them run.

`make test-kernels` runs them in any case, and keeps the hash of what they passed on in `tests/kernels/proved.txt`.
"""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
from functools import cache
from pathlib import Path

import numpy as np

from common.cuda.compile import nvrtc_version

ROOT = Path(__file__).parents[1]
TESTS = ("tests/cpu_cuda", "tests/kernels", "tests/stages/persistent/test_persistent_grid.py")
# What these import: a change of a word anywhere in it counts.
SOURCES = (
    "common",
    "stages",
    "tests/cpu_cuda",
    "tests/kernels",
    "tests/stages/numpy_parts.py",
    "tests/stages/persistent",
)
SUFFIXES = (".py", ".cu", ".cuh", ".cpp", ".h")
KEPT = ROOT / "tests" / "kernels" / "proved.txt"
REASON = "passed before on the same sources and compilers (tests/kernels/proved.txt); make test-kernels runs them"


def is_of_kernels(path: Path) -> bool:
    """Whether a test file is one of these."""
    return any(path.is_relative_to(ROOT / name) for name in TESTS)


def passed_before() -> bool:
    """Whether these tests passed on the same sources and compilers, and with the same random numbers."""
    return "LADDER_TEST_SEED" not in os.environ and KEPT.exists() and KEPT.read_text().split() == [current_hash()]


def keep() -> None:
    """Keep that they pass."""
    KEPT.write_text(f"{current_hash()}\n")


@cache
def current_hash() -> str:
    """The hash of all sources, by name, and of the compilers' versions."""
    hashed = hashlib.sha256("\0".join([platform.machine(), np.__version__, _gcc(), _nvrtc()]).encode())
    for path in sorted(path for name in SOURCES for path in _files(ROOT / name)):
        hashed.update(f"\0{path.relative_to(ROOT)}\0".encode() + path.read_bytes())
    return hashed.hexdigest()


def _files(path: Path) -> list[Path]:
    return [file for file in path.rglob("*") if file.suffix in SUFFIXES] if path.is_dir() else [path]


def _gcc() -> str:
    try:
        return subprocess.run(["g++", "--version"], capture_output=True, text=True, check=True).stdout.splitlines()[0]
    except (OSError, subprocess.CalledProcessError):
        return "none"


def _nvrtc() -> str:
    try:
        return str(nvrtc_version())
    except (ImportError, RuntimeError):
        return "none"
