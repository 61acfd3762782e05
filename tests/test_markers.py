"""The markers `gpu`, `torch` and `jax`: a test that carries one is skipped where it cannot run, counted by reason."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from tests import conftest, proved

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


def config(*, prove: bool) -> pytest.Config:
    return cast(pytest.Config, SimpleNamespace(option=SimpleNamespace(prove=prove)))


@pytest.mark.parametrize("lacking", [set(), {"cuda"}, {"torch"}, {"jax"}, {"cuda", "torch"}])
def test_marked_tests_are_skipped_without_their_need(monkeypatch: pytest.MonkeyPatch, lacking: set[str]) -> None:
    def missing(needs: Iterable[str]) -> str | None:
        return next((f"no {need}" for need in needs if need in lacking), None)

    monkeypatch.setattr(conftest, "missing", missing)
    carried = [(), ("gpu",), ("torch",), ("jax",), ("gpu", "torch")]
    tests = [Collected(*markers) for markers in carried]
    conftest.pytest_collection_modifyitems(config(prove=False), cast(list[pytest.Item], tests))
    reasons = {marker: [f"no {need}"] * (need in lacking) for marker, (need,) in conftest.NEEDS.items()}
    assert [test.skipped for test in tests] == [[r for marker in m for r in reasons[marker]] for m in carried]


def test_kernels_that_passed_before_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proved, "passed_before", lambda: {"kernels"})
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    monkeypatch.setenv(conftest.PROVED, "")
    conftest.pytest_configure()
    names = ("kernels/test_rounding.py", "stages/tiles/test_tile_gemm.py", "test_docs.py")
    assert [name for name in names if conftest.pytest_ignore_collect(ROOT / "tests" / name)] == [names[0]]
    for prove, left in ((False, 3), (True, 2)):
        tests = [Collected(path=ROOT / "tests" / name) for name in names]
        conftest.pytest_collection_modifyitems(config(prove=prove), cast(list[pytest.Item], tests))
        assert len(tests) == left


@pytest.mark.parametrize(
    ("code", "keyword", "ends", "kept"), [(0, "", 0, 1), (5, "", 0, 1), (1, "", 1, 0), (0, "tiles", 0, 0)]
)
def test_that_all_passed_is_kept_and_nothing_less(
    monkeypatch: pytest.MonkeyPatch, code: int, keyword: str, ends: int, kept: int
) -> None:
    calls: list[str] = []
    monkeypatch.setattr(proved, "keep", lambda: calls.append("kept"))
    option = SimpleNamespace(prove=True, keyword=keyword, markexpr="")
    session = SimpleNamespace(config=SimpleNamespace(args=[*proved.TESTS], option=option), exitstatus=code)
    conftest.pytest_sessionfinish(cast(pytest.Session, session), code)
    assert (session.exitstatus, len(calls)) == (ends, kept)


def test_what_passed_counts_for_the_same_code_and_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    test, judge, kernel = (tmp_path / name for name in ("tests/test_a.py", "ladder/judge.py", "stages/tile.cu"))
    text = {test: '"""Why."""\nfrom ladder import judge\n', judge: "LIMIT = 1\n", kernel: "// one\n"}
    for path in text:
        path.parent.mkdir()
        path.write_text(text[path])
    monkeypatch.setattr(proved, "ROOT", tmp_path)
    monkeypatch.setattr(proved, "LOADED", ("stages",))
    monkeypatch.setattr(proved, "GROUPS", {"rungs": ("tests/test_a.py",)})
    monkeypatch.setattr(proved, "KEPT", tmp_path / "proved.txt")
    monkeypatch.delenv("LADDER_TEST_SEED", raising=False)

    def passed() -> bool:
        for cached in (proved.current_hash, proved._read, proved._modules):
            monkeypatch.setattr(proved, cached.__name__, cache(cached.__wrapped__))
        return proved.passed_before() == {"rungs"}

    assert not passed()
    proved.keep()
    assert passed()
    for path, other in ((test, "import ladder.judge"), (judge, "LIMIT = 2"), (kernel, "// two"), (kernel, None)):
        path.unlink() if other is None else path.write_text(other)
        assert not passed(), other
        path.write_text(text[path])
    test.write_text(text[test].replace("Why", "Another") + "# said\n")
    assert passed()
    monkeypatch.setenv("LADDER_TEST_SEED", "1")
    assert not passed()
    monkeypatch.delenv("LADDER_TEST_SEED")
    monkeypatch.setattr(proved, "_gcc", lambda: "another")
    assert not passed()


def test_make_runs_the_tests_of_kernels_that_are_kept() -> None:
    named = (ROOT / "Makefile").read_text().partition("KERNELS = ")[2].partition("\n\n")[0]
    assert tuple(named.replace("\\", " ").split()) == proved.TESTS
    assert [name for name in (*proved.TESTS, *proved.LOADED) if not (ROOT / name).exists()] == []


def test_the_quick_tests_exist() -> None:
    named = (ROOT / "Makefile").read_text().partition("QUICK =")[2].partition("\n\n")[0]
    paths = named.replace("\\", " ").split()
    assert len(paths) > 10
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_ci_runs_no_test_that_looks_at_times() -> None:
    makefile, ci = (ROOT / "Makefile").read_text(), (ROOT / ".ci/run").read_text()
    assert '-m "not alone"' in makefile.partition("PYTEST =")[2].partition("\n")[0]
    for goal in ("test", "test-quick"):
        assert "$(PYTEST)" in makefile.partition(f"\n{goal}: ")[2].partition("\n\n")[0]
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
