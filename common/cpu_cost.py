"""The least time of a training step on a CPU: calls, barriers, arithmetic, and bytes from where they must come.

As in `common.cost`, every function is pure: it takes the problem, the counts of a rung's design and measured limits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from common.cost import FLOAT_BYTES, Weights, operations, parameters
from common.problem import Problem

Level = Literal["L1", "L2", "L3", "memory"]
PASSES: Mapping[Weights, int] = {"gradients": 5, "updated": 3, "streamed": 3, "planes": 3, "kept": 3}
"""Over the weights in a step: read forward, then read and written by the update; gradients are written and read."""


@dataclass(frozen=True)
class CpuRates:
    """A CPU's measured limits: times in us, rates in bytes or operations per us."""

    call_us: float
    blas_us: float
    barrier_us: float  # of all threads
    flops: float  # of one core
    all_flops: float
    reads: Mapping[Level, float]  # of one core
    all_memory_reads: float
    sizes: Mapping[Level, int]  # bytes; memory has none

    def level(self, size: float) -> Level:
        """The nearest level that holds `size` bytes."""
        return next((level for level, room in self.sizes.items() if size <= room), "memory")

    def reading(self, level: Level, threads: int) -> float:
        """The rate of this many threads: each core has caches of its own, and all share the memory."""
        if level == "memory":
            return self.reads["memory"] if threads == 1 else max(self.all_memory_reads, self.reads["memory"])
        return threads * self.reads[level]


@dataclass(frozen=True)
class CpuDesign:
    """What a rung does in a step."""

    calls: float  # from Python
    barriers: float
    blas_calls: float  # of one thread
    threads: int
    pixel_bytes: int
    weights: Weights


@dataclass(frozen=True)
class CpuFloor:
    """The floor of a design, in us: calls and barriers add to the longest of three times that overlap."""

    calling_us: float
    barriers_us: float
    computing_us: float
    images_us: float
    cached_us: float
    images_from: Level
    cached_in: Level
    flops: float
    bytes: float

    @property
    def kernels_us(self) -> float:
        """The longest of arithmetic, reading the images, and moving the rest."""
        return max(self.computing_us, self.images_us, self.cached_us)

    @property
    def bound_by(self) -> str:
        """The longest part, in words."""
        parts = {
            "calls from Python": self.calling_us,
            "barriers": self.barriers_us,
            "arithmetic": self.computing_us,
            f"reading the images from {self.images_from}": self.images_us,
            f"moving weights and images through {self.cached_in}": self.cached_us,
        }
        return max(parts, key=parts.__getitem__)


def cpu_floor(problem: Problem, steps: int, design: CpuDesign, rates: CpuRates) -> CpuFloor:
    """The floor of a design, in epochs of `steps` steps.

    An epoch passes over all images, so each batch comes from the level that holds all of them. A batch is read again
    for the update, and the weights are read and written, at the level that holds them: a thread's share of both.
    """
    threads, batch = design.threads, problem.batch_size
    flops = float(sum(operation.flops for operation in operations(problem)))
    images = float(batch * problem.inputs * design.pixel_bytes)
    images_from = rates.level(images * steps)
    weights = float(FLOAT_BYTES * parameters(problem))
    cached_in = rates.level((weights + images) / threads)
    cached = PASSES[design.weights] * weights + images
    peak = rates.flops if threads == 1 else rates.all_flops
    return CpuFloor(
        calling_us=design.calls * rates.call_us,
        barriers_us=design.barriers * rates.barrier_us,
        computing_us=flops / peak + design.blas_calls * rates.blas_us,
        images_us=images / rates.reading(images_from, threads),
        cached_us=cached / rates.reading(cached_in, threads),
        images_from=images_from,
        cached_in=cached_in,
        flops=flops,
        bytes=images + cached,
    )
