"""Measures how fast one core of the host is, and all together, which decides the times of a stage on the CPU.

Linux does not report this. On a virtual machine with two cores, both together were a third slower for minutes, while
each alone was as fast as before: as if two cores had become two hardware threads of one core.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from common.blas import limit_blas_threads
from ladder.records.run import PACE_SIZE, HostState

BUFFERS = 4  # averages over places in memory, which change a product's time by up to 15 %
READING_S = 0.03  # of products; on a busy host, one product per buffer even if it takes longer
SLOWDOWN_LIMIT = 0.12  # readings of a host at constant speed differ by less


ONE_THREAD = 1.5  # cores; a stage that keeps fewer busy has one thread, which does not feel the others' speed


class Paces(NamedTuple):
    """The seconds that a product takes on one core, and on all."""

    one_s: float
    all_s: float


def pace_of(readings: Sequence[Paces], states: Sequence[HostState], cores: int) -> tuple[float | None, int]:
    """The faster of two readings, for as many cores as the stage kept busy, and that number: one or all.

    The faster one, since other work on the cores can only slow a reading down. None for fewer than two.
    """
    if len(readings) < 2:
        return None, 0
    over_s = sum(state.over_s for state in states)
    if over_s > 0 and sum(state.own_s for state in states) < ONE_THREAD * over_s:
        return min(reading.one_s for reading in readings), 1
    return min(reading.all_s for reading in readings), cores


class CpuSpeedProbe:
    """Times a small matrix product on one BLAS thread, and on `cores` of them."""

    def __init__(self, cores: int) -> None:
        self.cores = cores
        random = np.random.default_rng(0)
        self._factors = [random.random((PACE_SIZE, PACE_SIZE), np.float32) for _ in range(BUFFERS)]
        self._products = [np.empty_like(factor) for factor in self._factors]

    def read(self) -> Paces:
        """The seconds that a product takes now: the medians over `READING_S`."""
        one_s = self._read_on(1)
        return Paces(one_s, self._read_on(self.cores) if self.cores > 1 else one_s)

    def _read_on(self, cores: int) -> float:
        times_s = list[float]()
        with limit_blas_threads(cores):
            self._product_s()  # wakes the threads
            deadline = time.perf_counter() + READING_S
            while not times_s or time.perf_counter() < deadline:
                times_s.append(self._product_s())
        return statistics.median(times_s)

    def _product_s(self) -> float:
        begin = time.perf_counter()
        for factor, product in zip(self._factors, self._products, strict=True):
            np.matmul(factor, factor, out=product)
        return (time.perf_counter() - begin) / BUFFERS
