"""Measures how fast all cores of the host are together, which decides the times of a stage on the CPU.

Linux does not report this. On a virtual machine with two cores, both together were a third slower for minutes, while
each alone was as fast as before: as if two cores had become two hardware threads of one core.
"""

from __future__ import annotations

import statistics
import time

import numpy as np

from common.blas import limit_blas_threads

# Rows and columns. Two cores take 0.15 ms for one product; synchronising them is part of it, as in a stage's products.
MATRIX_SIZE = 256
BUFFERS = 4  # averages over places in memory, which change a product's time by up to 15 %
READING_S = 0.03  # of products; on a busy host, one product per buffer even if it takes longer
SLOWDOWN_LIMIT = 0.12  # readings of a host at constant speed differ by less


class CpuSpeedProbe:
    """Times a small matrix product on `cores` BLAS threads, independently of the threads that the stage uses."""

    def __init__(self, cores: int) -> None:
        self._cores = cores
        random = np.random.default_rng(0)
        self._factors = [random.random((MATRIX_SIZE, MATRIX_SIZE), np.float32) for _ in range(BUFFERS)]
        self._products = [np.empty_like(factor) for factor in self._factors]

    def read(self) -> float:
        """The seconds that a product takes now: the median over `READING_S`."""
        times_s = list[float]()
        with limit_blas_threads(self._cores):
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
