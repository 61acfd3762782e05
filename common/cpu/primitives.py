"""The CPU's limits: each method measures one primitive and returns its samples.

A sample repeats the primitive inside compiled code for some milliseconds, so that the call from Python does not count.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from common.blas import limit_blas_threads
from common.cpu import primitive_kernels as kernels
from common.cpu.cores import Caches, caches, usable_cores
from common.cpu.host import BoundCall, Host, Replay, Team
from common.cpu.stamps import stamping

SAMPLES = 25  # of each primitive; short ones, since other work on the cores comes in slices of milliseconds
LEAST_SAMPLES, MOST_S = 5, 0.2  # on a busy host fewer, so that a primitive does not take longer
SAMPLE_S = 0.002  # at least, of a primitive's repetitions
LEAST_MEMORY, MOST_MEMORY = 64 << 20, 256 << 20  # bytes that a pass over memory reads: twice what L3 holds
MOST_L3_BYTES = 8 << 20  # read from L3, which others may share
NUMBERS = 2048  # multiplied: 8 kB, in L1
# A thread that other work keeps from its core must not make so few repetitions seem long enough.
MULTIPLICATIONS = 1024
# Threads meet in stretches of some 50 us, each with time stamps: other work, which keeps a thread from its core for
# milliseconds, lengthens some of them and leaves the rest as they are.
MEETINGS, STRETCHES = 64, 8
PRODUCT = 384  # rows and columns of BLAS's product


class CpuPrimitives:
    """The cores that this process may use. Every method returns samples: us, GB/s or GFLOP/s."""

    def __init__(self, cores: int | None = None, sizes: Caches | None = None) -> None:
        self.cores = cores or usable_cores()
        self.caches = sizes or caches()
        self._host = Host({})
        self._team = Team(self.cores)
        self._memory: Any = None

    def call(self) -> list[float]:
        """A call from Python into compiled code."""
        call = BoundCall(kernels.nothing, ())

        def repeat(times: int) -> None:
            for _ in range(times):
                call()

        return [seconds * 1e6 for seconds in _sampled(repeat)]

    def blas_call(self) -> list[float]:
        """BLAS's smallest product, called by compiled code."""
        return [seconds * 1e6 for seconds in self._blas(1)]

    def product(self) -> list[float]:
        """BLAS's product on one core, GFLOP/s."""
        return [2 * PRODUCT**3 / seconds / 1e9 for seconds in self._blas(PRODUCT)]

    def barrier(self) -> list[float]:
        """All threads meet; a sample is a stretch of meetings."""
        stretch = Replay([self._team.barrier()] * MEETINGS).whole
        lists = [Replay([stretch] * STRETCHES, thread) for thread in range(self.cores)]
        with stamping() as stamps:
            for _ in _samples():
                self._team.run(lists)
            times = np.concatenate([calls.times for calls in stamps.take() if calls.thread == 0])
        samples: list[float] = ((times[:, 1] - times[:, 0]) / MEETINGS / 1e3).tolist()
        return samples

    def read(self, level: str) -> list[float]:
        """One core reads from L1, L2, L3 or memory, GB/s."""
        return self._reads([self._array(level)])

    def read_memory_with_all(self) -> list[float]:
        """All cores read from memory, each a part, GB/s."""
        return self._reads(np.array_split(self._array("memory"), self.cores))

    def write_memory(self) -> list[float]:
        """One core writes to memory, GB/s."""
        array = self._array("memory").view(np.float32)

        def repeat(times: int) -> None:
            BoundCall(kernels.write, (array, array.size, times))()

        return [array.nbytes / seconds / 1e9 for seconds in _sampled(repeat)]

    def multiply_add(self, cores: int = 1) -> list[float]:
        """float32 multiply-adds, all in L1 and in vectors, GFLOP/s."""
        arrays = [self._host.upload(np.ones(NUMBERS, np.float32)) for _ in range(cores)]

        def repeat(times: int) -> None:
            self._on_all(kernels.multiply_adds, [(array, NUMBERS, times, 0.999, 0.001) for array in arrays])

        flops = 2 * kernels.MULTIPLY_ADDS * NUMBERS * cores
        return [flops / seconds / 1e9 for seconds in _sampled(repeat, at_least=MULTIPLICATIONS)]

    def _array(self, level: str) -> Any:
        """Words that lie in a level: half of its size, if that exceeds the level before."""
        sizes = {
            "l1": self.caches.l1 // 2,
            "l2": self.caches.l2 // 2,
            "l3": max(2 * self.caches.l2, min(self.caches.l3 // 2, MOST_L3_BYTES)),
        }
        if level != "memory":
            return self._host.upload(np.ones(sizes[level] // 64 * 8, np.int64))
        if self._memory is None:
            self._memory = self._host.upload(
                np.ones(min(max(LEAST_MEMORY, 2 * self.caches.l3), MOST_MEMORY) // 8, np.int64)
            )
        return self._memory

    def _reads(self, arrays: list[Any]) -> list[float]:
        seen = [np.zeros(8, np.int64) for _ in arrays]

        def repeat(times: int) -> None:
            rows = [(array, array.size, times, sums) for array, sums in zip(arrays, seen, strict=True)]
            self._on_all(kernels.read, rows)

        size = sum(array.nbytes for array in arrays)
        return [size / seconds / 1e9 for seconds in _sampled(repeat)]

    def _on_all(self, kernel: Any, rows: list[tuple[Any, ...]]) -> None:
        """Call a kernel on a thread for each row."""
        self._team.run([Replay([BoundCall(kernel, row)], thread) for thread, row in enumerate(rows)])

    def _blas(self, size: int) -> list[float]:
        """The seconds of a product of square matrices."""
        from numba.extending import get_cython_function_address

        sgemm = get_cython_function_address("scipy.linalg.cython_blas", "sgemm")
        limit_blas_threads(1)
        random = np.random.default_rng(0)
        left, right = (self._host.upload(random.random((size, size), np.float32)) for _ in range(2))
        out, flag = self._host.upload(left), np.frombuffer(b"N", np.uint8)
        sizes, one, zero = np.array([size], np.int32), np.ones(1, np.float32), np.zeros(1, np.float32)
        arguments: list[Any] = [flag, flag, sizes, sizes, sizes, one, left, sizes, right, sizes, zero, out, sizes]
        addresses = np.array([argument.ctypes.data for argument in arguments], np.int64)

        def repeat(times: int) -> None:
            BoundCall(kernels.call_blas, (sgemm, addresses, times), keep=arguments)()

        return _sampled(repeat)


def _sampled(repeat: Callable[[int], None], at_least: int = 1) -> list[float]:
    """The seconds of one repetition in each sample; `repeat` makes as many as it is given."""
    times = at_least
    while min(_timed(repeat, times) for _ in range(3)) < SAMPLE_S:  # these are discarded
        times *= 2
    return [_timed(repeat, times) / times for _ in _samples()]


def _samples() -> Iterator[int]:
    """The samples to take, counted from 0: fewer where they take long."""
    deadline = time.perf_counter() + MOST_S
    for sample in range(SAMPLES):
        if sample >= LEAST_SAMPLES and time.perf_counter() >= deadline:
            return
        yield sample


def _timed(repeat: Callable[[int], None], times: int) -> float:
    begin = time.perf_counter()
    repeat(times)
    return time.perf_counter() - begin
