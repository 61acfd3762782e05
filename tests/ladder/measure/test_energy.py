"""Joules an epoch, with a GPU that draws 400 W in work and 100 W without, and a counter that moves every 100 ms."""

from __future__ import annotations

import time

import pytest

from ladder.measure import energy
from ladder.measure.energy import LEAST_S, CounterError, energy_of

WORKING_W, IDLE_W, MOVES_S = 400.0, 100.0, 0.1


class FakeGpu:
    """A clock, a trainer and a counter."""

    def __init__(self, epoch_s: float) -> None:
        self.now, self.drawn, self.epoch_s, self.trained = 0.03, 0.0, epoch_s, 0
        self._shown, self._moved = 0.0, 0.0

    def train(self, epochs: int) -> None:
        self.trained += epochs
        self._pass(epochs * self.epoch_s, WORKING_W)

    def sleep(self, seconds: float) -> None:
        self._pass(seconds, IDLE_W)

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


@pytest.mark.parametrize("epoch_s", [1e-4, 5e-3, 0.13, 3.0])
def test_joules_watts_and_idle_power_are_those_of_the_gpu(epoch_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = FakeGpu(epoch_s)
    monkeypatch.setattr(time, "sleep", gpu.sleep)
    found = energy_of(gpu.train, epoch_s, gpu.read, gpu.clock)
    within = max(0.01, (MOVES_S + epoch_s) / LEAST_S)  # a reading comes up to an epoch after the counter has moved
    assert found.joules == pytest.approx(WORKING_W * epoch_s, rel=within)
    assert found.watts == pytest.approx(WORKING_W, rel=within)
    assert found.idle_w == pytest.approx(IDLE_W, rel=0.02)
    assert found.seconds >= LEAST_S


def test_a_counter_that_stands_still_is_no_counter() -> None:
    gpu = FakeGpu(0.01)
    with pytest.raises(CounterError, match="stands still"):
        energy_of(gpu.train, 0.01, lambda: 5.0, gpu.clock)
    assert gpu.now < energy.STILL_S + 1


def test_a_gpu_whose_energy_nvml_does_not_count_says_so() -> None:
    gpu = FakeGpu(0.01)
    with pytest.raises(CounterError, match="does not count"):
        energy_of(gpu.train, 0.01, lambda: None, gpu.clock)
    assert not gpu.trained
