"""Kernels written in a test, compiled for the CPU."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cpu_cuda.shim import Shim, Toolchain

Plant = Callable[[str], Shim]


@pytest.fixture
def plant(tmp_path: Path, toolchain: Toolchain) -> Plant:
    """Turns the text of a `.cu` file into a shim that can launch its kernels."""

    def compile_source(source: str) -> Shim:
        (tmp_path / "planted.cu").write_text(source)
        return Shim([tmp_path / "planted.cu"], toolchain)

    return compile_source
