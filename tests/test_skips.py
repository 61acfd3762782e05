"""The summary of skipped tests: a line a reason, not one a place."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
TESTS = """
import pytest

@pytest.mark.parametrize("number", range(9))
def test_needs(number):
    pytest.skip("needs a GPU")

@pytest.mark.parametrize("number", range(12))
def test_varies(number):
    pytest.skip(f"reason {number}")
"""


def test_reasons_are_counted_and_many_are_cut(tmp_path: Path) -> None:
    (tmp_path / "test_skipping.py").write_text(TESTS)
    (tmp_path / "conftest.py").write_text("from tests.conftest import pytest_terminal_summary\n")
    command = [sys.executable, "-m", "pytest", "-q", "-rfE", "-p", "no:cacheprovider", f"--rootdir={tmp_path}"]
    done = subprocess.run([*command, "-c", "/dev/null", str(tmp_path)], cwd=ROOT, capture_output=True, text=True)
    lines = [line.strip() for line in done.stdout.splitlines()]
    assert "9  needs a GPU" in lines
    assert "7  for other reasons; ARGS=-rs lists them all" in lines
    assert sum("reason" in line for line in lines) == 6
