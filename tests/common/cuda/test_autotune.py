"""Trials of candidates, with another clock."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from common.cuda import autotune
from common.cuda.autotune import Enqueue, Trials


def test_what_comes_before_a_candidate_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LADDER_CACHE_DIR", str(tmp_path))
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
