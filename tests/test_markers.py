"""The markers `gpu`, `torch` and `jax`: a test that carries one is skipped exactly where it cannot run. And groups."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

import pytest

from tests import conftest


class Collected:
    """A test as the hook sees it."""

    def __init__(self, *markers: str, nodeid: str = "tests/test_this.py::test_that") -> None:
        self.markers = markers
        self.nodeid = nodeid
        self.skipped: list[str] = []
        self.group = ""

    def get_closest_marker(self, name: str) -> bool:
        return name in self.markers

    def add_marker(self, mark: pytest.MarkDecorator) -> None:
        if mark.name == "skip":
            self.skipped.append(mark.kwargs["reason"])
        else:
            assert mark.name == "xdist_group"
            self.group = mark.args[0]


@pytest.mark.parametrize("lacking", [set(), {"cuda"}, {"torch"}, {"jax"}, {"cuda", "torch"}])
def test_marked_tests_are_skipped_where_their_need_is_missing(
    monkeypatch: pytest.MonkeyPatch, lacking: set[str]
) -> None:
    def missing(needs: Iterable[str]) -> str | None:
        return next((f"no {need}" for need in needs if need in lacking), None)

    monkeypatch.setattr(conftest, "missing", missing)
    carried = [(), ("gpu",), ("torch",), ("jax",), ("gpu", "torch")]
    tests = [Collected(*markers) for markers in carried]
    conftest.pytest_collection_modifyitems(cast(list[pytest.Item], tests))
    reasons = {marker: [f"no {need}"] * (need in lacking) for marker, (need,) in conftest.NEEDS.items()}
    assert [test.skipped for test in tests] == [[r for marker in m for r in reasons[marker]] for m in carried]


def test_one_worker_takes_the_tests_of_a_file_and_one_those_that_need_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conftest, "missing", lambda needs: None)
    tests = [
        Collected(nodeid="tests/a/test_b.py::test_c[d::e]"),
        Collected("torch", nodeid="tests/a/test_b.py::test_f"),
        Collected("gpu", nodeid="tests/a/test_b.py::test_g"),
        Collected("gpu", "torch", nodeid="tests/test_h.py::test_i"),
    ]
    conftest.pytest_collection_modifyitems(cast(list[pytest.Item], tests))
    assert [test.group for test in tests] == ["tests/a/test_b.py", "tests/a/test_b.py", "gpu", "gpu"]
