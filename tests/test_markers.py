"""The markers `gpu` and `torch`: a test that carries one is skipped, with the reason, exactly where it cannot run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

import pytest

from tests import conftest


class Collected:
    """A test as the hook sees it."""

    def __init__(self, *markers: str) -> None:
        self.markers = markers
        self.skipped: list[str] = []

    def get_closest_marker(self, name: str) -> bool:
        return name in self.markers

    def add_marker(self, mark: pytest.MarkDecorator) -> None:
        assert mark.name == "skip"
        self.skipped.append(mark.kwargs["reason"])


@pytest.mark.parametrize("lacking", [set(), {"cuda"}, {"torch"}, {"cuda", "torch"}])
def test_marked_tests_are_skipped_where_their_need_is_missing(
    monkeypatch: pytest.MonkeyPatch, lacking: set[str]
) -> None:
    def missing(needs: Iterable[str]) -> str | None:
        return next((f"no {need}" for need in needs if need in lacking), None)

    monkeypatch.setattr(conftest, "missing", missing)
    plain, gpu, torch, both = Collected(), Collected("gpu"), Collected("torch"), Collected("gpu", "torch")
    conftest.pytest_collection_modifyitems(cast(list[pytest.Item], [plain, gpu, torch, both]))
    no_gpu, no_torch = ["no cuda"] * ("cuda" in lacking), ["no torch"] * ("torch" in lacking)
    assert [test.skipped for test in (plain, gpu, torch, both)] == [[], no_gpu, no_torch, no_gpu + no_torch]
