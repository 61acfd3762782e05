"""How fast the host's cores are together: what a stage on the CPU depends on, and no account of the system tells.

Of a virtual machine with two cores, each was as fast as ever for minutes while both together were a third slower, for
all who use both: as if they were two cores now, and two threads of one later. Nothing of it is in `/proc`.
"""

from __future__ import annotations

import statistics
import time

import numpy as np

from common.blas import limit_blas_threads

SIZE = 256  # of which a product takes both cores 0.15 ms, and meeting is a part of that, as it is of a stage's products
PLACES = 4  # in memory, on which it depends by up to 15 %
READING_S = 0.03  # or one product of each, where cores are so busy that it takes longer
OFF_PACE = 0.12  # more than that, readings beside one pace do not differ by


class CpuSpeedProbe:
    """A small product by so many of BLAS's threads, however many the stage works with."""

    def __init__(self, cores: int) -> None:
        self._cores = cores
        random = np.random.default_rng(0)
        self._factors = [random.random((SIZE, SIZE), np.float32) for _ in range(PLACES)]
        self._products = [np.empty_like(factor) for factor in self._factors]

    def read(self) -> float:
        """The seconds that it takes now, the median of as many as there is time for."""
        took = list[float]()
        with limit_blas_threads(self._cores):
            self._took_s()  # which wakes them
            ends = time.perf_counter() + READING_S
            while not took or time.perf_counter() < ends:
                took.append(self._took_s())
        return statistics.median(took)

    def _took_s(self) -> float:
        begin = time.perf_counter()
        for factor, product in zip(self._factors, self._products, strict=True):
            np.matmul(factor, factor, out=product)
        return (time.perf_counter() - begin) / PLACES
