"""Joules per epoch, with a GPU that draws 400 W in work and 100 W without, and a counter that moves every 100 ms.

After work the GPU draws 300 W for a while, as its clock falls late.
"""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from common.trainer import EpochMetrics
from ladder.measure import energy_counter, measurement
from ladder.measure.energy_counter import LEAST_S, CounterError, energy_of
from ladder.measure.measurement import Laps, Measurement
from ladder.measure.timing import Plan, TimedRun, Validation
from ladder.records.run import Energy

A_RUN = 20  # epochs
WORKING_W, AWAKE_W, IDLE_W, AWAKE_S, MOVES_S = 400.0, 300.0, 100.0, 0.8, 0.1


class FakeGpu:
    """A clock, a trainer and a counter."""

    def __init__(self, epoch_s: float) -> None:
        self.now, self.drawn, self.epoch_s, self.trained, self.waits = 100.03, 0.0, epoch_s, 0, 0
        self._shown, self._moved, self._worked = 0.0, 100.0, 0.0

    def train(self, epochs: int) -> None:
        self.trained += epochs
        self.waits += 1
        self._pass(epochs * self.epoch_s, WORKING_W)
        self._worked = self.now

    def sleep(self, seconds: float) -> None:
        awake_s = min(seconds, max(0.0, self._worked + AWAKE_S - self.now))
        self._pass(awake_s, AWAKE_W)
        self._pass(seconds - awake_s, IDLE_W)

    def read(self) -> float:
        return self._shown

    def clock(self) -> float:
        return self.now

    def _pass(self, seconds: float, watts: float) -> None:
        """Let time pass; the counter shows what had been drawn at its last move."""
        ends = self.now + seconds
        while (move := self._moved + MOVES_S) <= ends:
            self.drawn += (move - self.now) * watts
            self.now, self._moved, self._shown = move, move, self.drawn
        self.drawn += (ends - self.now) * watts
        self.now = ends


@pytest.mark.parametrize("epoch_s", [1e-4, 0.004, 0.13, 3.0])
def test_joules_watts_and_idle_power_are_those_of_the_gpu(epoch_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = FakeGpu(epoch_s)
    monkeypatch.setattr(time, "sleep", gpu.sleep)
    found = energy_of(gpu.train, epoch_s, A_RUN, gpu.read, gpu.clock)
    within = 2 * max(energy_counter.APART_S, epoch_s) / LEAST_S  # a reading comes so long after the counter has moved
    assert found.joules == pytest.approx(WORKING_W * epoch_s, rel=within)
    assert found.watts == pytest.approx(WORKING_W, rel=within)
    assert found.idle_w == pytest.approx(IDLE_W, rel=0.01)
    assert LEAST_S <= found.seconds <= LEAST_S + (A_RUN + 1) * max(energy_counter.APART_S, epoch_s) + MOVES_S
    assert gpu.now >= 100 + found.seconds + 2 * energy_counter.IDLE_S
    near_s = min(energy_counter.APART_S, A_RUN * epoch_s)  # between two waits near the moves at both ends
    assert gpu.waits <= LEAST_S / (A_RUN * epoch_s) + 3 * MOVES_S / near_s + 4


def test_phases_follow_each_other_without_the_seconds_that_do_not_count() -> None:
    times = iter([1.0, 4.0, 9.0])
    laps = Laps(lambda: next(times))
    laps.end("first")
    laps.end("second", 2.0)
    assert laps.seconds == {"first": 3.0, "second": 3.0}


def test_a_counter_that_stands_still_is_no_counter() -> None:
    gpu = FakeGpu(0.01)
    with pytest.raises(CounterError, match="stands still"):
        energy_of(gpu.train, 0.01, A_RUN, lambda: 5.0, gpu.clock)
    assert gpu.now < 100 + energy_counter.STILL_S + 1
    gpu = FakeGpu(0.01)
    with pytest.raises(CounterError, match="does not count"):
        energy_of(gpu.train, 0.01, A_RUN, lambda: None, gpu.clock)
    assert not gpu.trained


def test_epochs_go_on_like_those_of_a_run_with_their_validation(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[object] = []
    trainer = SimpleNamespace(device="gpu", run_epoch=seen.append, last_metrics=lambda: None)
    measured: Any = object.__new__(Measurement)
    measured._job = SimpleNamespace(energy=True)
    measured._trainer, measured._fence, measured._clock = trainer, lambda: None, time.perf_counter
    measured._plan, measured._runs = Plan(epochs=3, repeats=1, warmups=0), [TimedRun(6.0, None, {}, 0.0)]

    def validate() -> EpochMetrics:
        seen.append("validated")
        return EpochMetrics(0.5, 0.9)

    measured._validation = Validation(validate, lambda epoch: epoch == 2)
    measured._gpu, measured._laps = SimpleNamespace(energy_j=lambda: 1.0), Laps(time.perf_counter)

    def energy_of(train: Any, epoch_s: float, a_run: int, *_: object) -> Energy:
        assert (epoch_s, a_run) == (2.0, 3)
        train(2)
        train(2)
        return Energy(1.0, 2.0, 3.0, 4.0)

    monkeypatch.setattr(measurement, "energy_of", energy_of)
    measured._energy()
    assert seen == [0, 1, 2, "validated", 0]
    assert measured._drawn == Energy(1.0, 2.0, 3.0, 4.0)
    trainer.device = "cpu"
    measured._energy()
    assert (measured._drawn, len(seen)) == (None, 5)
