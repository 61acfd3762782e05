"""How fast the cores are together, asked beside what runs on them alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from ladder.pace import Pace
from tests.ladder.harness import NUMPY, Watcher, prepare


def test_it_is_the_median_of_the_products_that_there_is_time_for(monkeypatch: pytest.MonkeyPatch) -> None:
    pace = Pace(2)
    assert 0 < pace.read() < 0.1
    monkeypatch.setattr("ladder.pace.READING_S", 0.0)
    took = iter([9.0, 2.0])  # the first of which wakes threads
    monkeypatch.setattr(pace, "_took_s", lambda: next(took))
    assert pace.read() == 2.0

    now = iter(range(10))
    monkeypatch.setattr("ladder.pace.READING_S", 4.5)
    monkeypatch.setattr("time.perf_counter", lambda: next(now))
    took = iter([9.0, 7.0, 1.0, 1.0, 3.0, 3.0])
    assert pace.read() == 3.0


def test_it_is_asked_before_and_after_the_runs_of_a_stage_on_the_cpu(tmp_path: Path) -> None:
    (stage,) = prepare(tmp_path, NUMPY).run(Watcher()).stages
    (process,) = stage.processes
    assert process.pace_s is not None
    assert 0 < process.pace_s < 0.1
