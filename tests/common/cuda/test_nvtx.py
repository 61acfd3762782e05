"""Ranges for a profiler: nothing at all until they are switched on."""

from __future__ import annotations

from typing import Any

import pytest

from common.cuda import nvtx


class Nvtx:
    """Remembers what is pushed and popped."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def RangePush(self, name: str) -> None:  # noqa: N802
        self.told.append(name)

    def RangePop(self) -> None:  # noqa: N802
        self.told.append("pop")


class Part:
    """A part of a step."""

    def __call__(self, number: int) -> int:
        return number + 1

    def finish(self, *, number: int) -> int:
        return number + 2


def test_a_part_stays_what_it_is_where_ranges_are_off() -> None:
    part = Part()
    assert nvtx.marked(part, "update") is part
    with nvtx.named("epoch 0"):
        pass


def test_calls_and_blocks_are_ranges_where_they_are_on(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = Nvtx()
    monkeypatch.setattr(nvtx, "_nvtx", fake)
    part: Any = nvtx.marked(Part(), "update")
    with nvtx.named("step"):
        assert part(1) == 2
    assert part.finish(number=1) == 3
    assert fake.told == ["step", "update", "pop", "pop", "update.finish", "pop"]


def test_a_range_ends_with_an_error_too(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = Nvtx()
    monkeypatch.setattr(nvtx, "_nvtx", fake)
    with pytest.raises(ZeroDivisionError), nvtx.named("step"):
        1 / 0  # noqa: B018
    assert fake.told == ["step", "pop"]
