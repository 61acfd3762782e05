"""Kernels written in a test, compiled for the CPU."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cpu_cuda.shim import Shim, compile_runtime

Plant = Callable[[str], Shim]


@pytest.fixture(scope="session")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_runtime(tmp_path_factory.mktemp("runtime"))


@pytest.fixture
def plant(tmp_path: Path, runtime: Path) -> Plant:
    """Turns the text of a `.cu` file into a shim that can launch its kernels."""

    def compile_source(source: str) -> Shim:
        (tmp_path / "planted.cu").write_text(source)
        return Shim([tmp_path / "planted.cu"], tmp_path, runtime)

    return compile_source
