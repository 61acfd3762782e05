"""Where Numba keeps what it compiles."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CODE = """
from common.cpu.primitive_kernels import multiply_adds, nothing
print(*(type(kernel._cache).__name__ for kernel in (nothing, multiply_adds)))
"""


@pytest.mark.parametrize(("cache", "kept"), [("cache", "FunctionCache"), ("file/cache", "NullCache")])
def test_without_a_cache_to_write_to_each_process_compiles(tmp_path: Path, cache: str, kept: str) -> None:
    (tmp_path / "file").touch()
    inherited = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    environment = {**inherited, "LADDER_CACHE_DIR": str(tmp_path / cache), "NUMBA_DISABLE_JIT": "0"}
    found = subprocess.run([sys.executable, "-c", CODE], env=environment, capture_output=True, text=True, check=True)
    assert found.stdout.split() == [kept, kept]
