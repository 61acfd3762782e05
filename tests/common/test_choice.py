"""Choices that outlive the process that made them, and the trials that they come from, with another clock."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from common.choice import TuningCache, first_fastest
from common.cuda import autotune
from common.cuda.autotune import Enqueue, Trials


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LADDER_CACHE_DIR", str(tmp_path))
    return tmp_path


def test_what_one_process_chose_the_next_one_finds() -> None:
    TuningCache("cuBLASLt 130100 on NVIDIA H200").keep("128x784x10", 3)
    assert TuningCache("cuBLASLt 130100 on NVIDIA H200").get("128x784x10") == 3
    assert TuningCache("cuBLASLt 130100 on NVIDIA H200").get("another") is None
    assert TuningCache("cuBLASLt 130200 on NVIDIA H200").get("128x784x10") is None


def test_two_processes_keep_each_other_s_choices() -> None:
    first, second = TuningCache("x"), TuningCache("x")
    first.keep("a", 1)
    second.keep("b", 2)
    assert [TuningCache("x").get(purpose) for purpose in "ab"] == [1, 2]


def test_of_two_processes_that_choose_at_once_the_first_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu: Any = None
    mine, other = Trials(gpu, "x"), TuningCache("x")

    def seconds(gpu: Any, candidates: Sequence[Enqueue]) -> list[float]:
        other.keep("a", 1)  # while this process times
        return [1.0, 2.0]

    monkeypatch.setattr(autotune, "seconds", seconds)
    candidates: list[Enqueue] = [lambda: None] * 2
    assert mine.fastest("a", candidates) == 1
    assert Trials(gpu, "x").fastest("a", candidates) == 1
    TuningCache("y").keep("a", 7)  # by a process with more candidates
    assert Trials(gpu, "y").fastest("a", candidates) == TuningCache("y").get("a") == 0


@pytest.mark.parametrize("content", [b"", b"{", b'{"a": "one"}', b"\xff\xfe"])
def test_a_damaged_file_is_as_good_as_none(cache: Path, content: bytes) -> None:
    TuningCache("x").keep("a", 1)
    (file,) = (cache / "tuning").iterdir()
    file.write_bytes(content)
    assert TuningCache("x").get("a") is None
    TuningCache("x").keep("a", 2)
    assert TuningCache("x").get("a") == 2


def test_without_a_place_on_disk_the_process_itself_remembers(cache: Path) -> None:
    (cache / "tuning").write_text("a file where the folder should be")
    choices = TuningCache("x")
    choices.keep("a", 1)
    assert choices.get("a") == 1


@pytest.mark.parametrize(
    ("times", "chosen"), [([10.0, 9.9, 9.7], 2), ([10.0, 9.9, 9.81], 0), ([10.0, 9.0, 8.9], 1), ([10.0], 0)]
)
def test_only_what_is_clearly_faster_wins(times: list[float], chosen: int) -> None:
    assert first_fastest(times) == chosen


def test_what_comes_before_a_candidate_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = 0.0

    def takes(time_s: float) -> Enqueue:
        def enqueue() -> None:
            nonlocal clock
            clock += time_s

        return enqueue

    def seconds(gpu: Any, candidates: Sequence[Enqueue]) -> list[float]:
        times = []
        for candidate in candidates:
            begin = clock
            candidate()
            times.append(clock - begin)
        return times

    monkeypatch.setattr(autotune, "seconds", seconds)
    gpu: Any = None
    candidates = [takes(1.00), takes(0.96)]
    assert Trials(gpu, "warm").fastest("by 4 %", candidates) == 1
    assert Trials(gpu, "cold", before=takes(9.0)).fastest("by 4 %", candidates) == 1  # of 10 s it is 0.4 %


def test_long_launches_are_tried_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    took_s, tried = [10e-6, 0.15e-3, 3e-3, 11e-3, 13e-3], list[tuple[list[int], list[int], int]]()
    gpu: Any = None
    times_s: Any = partial(autotune.seconds, gpu)

    def samples(gpu: Any, candidates: list[int], launches: list[int], turns: int) -> list[list[float]]:
        tried.append((candidates, launches, turns))
        return [[took_s[candidate] * 1.1, *[took_s[candidate]] * (turns - 1)] for candidate in candidates]

    monkeypatch.setattr(autotune, "samples", samples)
    assert times_s([2, 3, 4]) == [3e-3, 11e-3, pytest.approx(14.3e-3)]
    assert tried == [([2, 3, 4], [1, 1, 1], 1), ([2, 3], [1, 1], autotune.TURNS)]
    times_s([0, 1, 2])
    assert tried[-1] == ([0, 1], [autotune.LAUNCHES_PER_TURN, 12], autotune.TURNS)
