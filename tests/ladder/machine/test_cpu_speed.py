"""The CPU speed probe: its median, and when a stage's process reads it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ladder.machine.cpu_speed import CpuSpeedProbe
from ladder.measure import measurement
from tests.cheats.test_honest import judge_in_this_process
from tests.ladder.harness import NUMPY, Watcher, prepare


def test_a_reading_is_the_median_of_the_products_in_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    probe = CpuSpeedProbe(2)
    assert 0 < probe.read() < 0.1
    monkeypatch.setattr("ladder.machine.cpu_speed.READING_S", 0.0)
    took = iter([9.0, 2.0])  # the first of wakes the threads
    monkeypatch.setattr(probe, "_product_s", lambda: next(took))
    assert probe.read() == 2.0

    now = iter(range(10))
    monkeypatch.setattr("ladder.machine.cpu_speed.READING_S", 4.5)
    monkeypatch.setattr("time.perf_counter", lambda: next(now))
    took = iter([9.0, 7.0, 1.0, 1.0, 3.0, 3.0])
    assert probe.read() == 3.0


@pytest.mark.parametrize("readings", [(2.0, 1.0), (1.0, 2.0)])
def test_the_faster_reading_of_before_imports_and_after_runs_counts(
    readings: tuple[float, float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge_in_this_process(monkeypatch)
    values, order = iter(readings), []

    def read(self: CpuSpeedProbe) -> float:
        order.append("probe")
        return next(values)

    def noted(name: str) -> None:
        done = getattr(measurement, name)

        def note(*args: Any, **options: Any) -> Any:
            order.append(name)
            return done(*args, **options)

        monkeypatch.setattr(measurement, name, note)

    monkeypatch.setattr(CpuSpeedProbe, "read", read)
    for name in ("import_packages", "timed_run", "measure"):
        noted(name)
    (stage,) = prepare(tmp_path, NUMPY, rounds=1).run(Watcher()).stages
    assert [process.pace_s for process in stage.processes] == [1.0]
    assert order[:2] == ["probe", "import_packages"]
    assert order[order.index("measure") :][:2] == ["measure", "probe"]
    assert order.count("probe") == 2


def test_a_stage_on_the_cpu_records_the_speed(tmp_path: Path) -> None:
    (stage,) = prepare(tmp_path, NUMPY).run(Watcher()).stages
    (process,) = stage.processes
    assert process.pace_s is not None
    assert 0 < process.pace_s < 0.1
