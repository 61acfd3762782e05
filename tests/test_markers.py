"""The markers `gpu`, `torch` and `jax`: a test that carries one is skipped where it cannot run, counted by reason."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import cast

import pytest

from tests import conftest

ROOT = Path(__file__).parents[1]


class Collected:
    """A test as the hook sees it."""

    def __init__(self, *markers: str, path: Path = Path()) -> None:
        self.path = path
        self.markers = markers
        self.skipped: list[str] = []

    def get_closest_marker(self, name: str) -> bool:
        return name in self.markers

    def add_marker(self, mark: pytest.MarkDecorator) -> None:
        assert mark.name == "skip"
        self.skipped.append(mark.kwargs["reason"])


@pytest.mark.parametrize("lacking", [set(), {"cuda"}, {"torch"}, {"jax"}, {"cuda", "torch"}])
def test_marked_tests_are_skipped_without_their_need(monkeypatch: pytest.MonkeyPatch, lacking: set[str]) -> None:
    def missing(needs: Iterable[str]) -> str | None:
        return next((f"no {need}" for need in needs if need in lacking), None)

    monkeypatch.setattr(conftest, "missing", missing)
    carried = [(), ("gpu",), ("torch",), ("jax",), ("gpu", "torch")]
    tests = [Collected(*markers) for markers in carried]
    conftest.pytest_collection_modifyitems(cast(list[pytest.Item], tests))
    reasons = {marker: [f"no {need}"] * (need in lacking) for marker, (need,) in conftest.NEEDS.items()}
    assert [test.skipped for test in tests] == [[r for marker in m for r in reasons[marker]] for m in carried]


def test_the_quick_tests_exist() -> None:
    named = (ROOT / "Makefile").read_text().partition("QUICK =")[2].partition("\n\n")[0]
    paths = named.replace("\\", " ").split()
    assert len(paths) > 10
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_ci_runs_no_test_that_looks_at_times() -> None:
    makefile, ci = (ROOT / "Makefile").read_text(), (ROOT / ".ci/run").read_text()
    for goal in ("test", "test-quick"):
        assert '$(PYTEST) -m "not alone' in makefile.partition(f"\n{goal}: ")[2].partition("\n\n")[0]
    assert "step make test " in ci
    assert "test-alone" not in ci


def test_the_files_that_begin_first_are_there() -> None:
    assert [name for name in conftest.FIRST if not (ROOT / "tests" / name).is_file()] == []


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
