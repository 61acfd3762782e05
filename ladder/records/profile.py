"""What a profiler saw of a stage, as `results.json` keeps it: counts, times, and where the time of a step went.

Microseconds are of the GPU's or the host's clock, whichever did it; "a step" is the mean over the profiled epochs,
where epochs with and without metrics count as often as they do in a run.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec

Positive = Annotated[float, msgspec.Meta(gt=0)]
Tool = Literal["nsys", "cupti"]
Kind = Literal["gemm", "layer", "softmax", "update", "fused", "copy", "launch", "wait", "other"]
"""What a kernel or a call is for, by its name: what figures colour it by."""


class Split(msgspec.Struct, frozen=True):
    """A step's time in parts that add up to it, in us."""

    kernels_us: float  # the device runs at least one kernel
    copies_us: float  # it copies or fills memory, and runs none
    queued_us: float  # it is between two pieces of work, though the next one had been handed over
    launching_us: float  # it has nothing to do, because the host has not handed over the next one yet
    waiting_us: float  # it has nothing to do, because the host waits for it: a synchronisation or a read-back

    @property
    def total_us(self) -> float:
        """The step."""
        return self.kernels_us + self.copies_us + self.queued_us + self.launching_us + self.waiting_us

    @property
    def work_us(self) -> float:
        """What the device works in it."""
        return self.kernels_us + self.copies_us

    @classmethod
    def mean(cls, splits: Sequence[Split]) -> Split:
        """The mean of each part of at least one split."""
        return cls(*(statistics.fmean(getattr(split, part) for split in splits) for part in cls.__struct_fields__))


class KernelUse(msgspec.Struct, frozen=True):
    """One kernel of the step: at its place in it where every step runs the same, and otherwise by its name."""

    name: str  # without template arguments
    kind: Kind
    place: int | None  # from 0, in the order of their start; null where kernels are summed up by name
    per_step: float
    us_per_step: float
    us_each: float  # the median
    registers: int  # a thread
    shared_bytes: int  # a block
    blocks: int
    threads: int  # a block
    cluster: int  # blocks; 1 where there are no clusters
    occupancy: float | None  # warps that fit on a multiprocessor, as a share of those that it has room for
    bytes: int | None  # what the operation has to move, each input read and each output written once


class CopyUse(msgspec.Struct, frozen=True):
    """Copies of one direction, or fills."""

    direction: Literal["host to device", "device to host", "device to device", "fill", "other"]
    per_epoch: float
    bytes_per_epoch: float
    us_per_step: float
    hidden_us_per_step: float = 0.0  # of these: those in which a kernel ran as well


class CallUse(msgspec.Struct, frozen=True):
    """A function of the CUDA runtime or driver that hands over work, waits or allocates."""

    name: str
    per_epoch: float
    us_per_step: float  # the host's time in it


class FirstCalls(msgspec.Struct, frozen=True):
    """Calls to allocators by name, before the later epochs that a profile is of."""

    preparing: dict[str, int]  # while a trainer was made, which ends with a step for nobody to see
    first_epoch: dict[str, int]  # the first one of that trainer


class Span(msgspec.Struct, frozen=True):
    """A bar of the timeline."""

    row: Literal["host", "gpu"]
    name: str
    kind: Kind
    start_us: float  # from the beginning of the excerpt
    duration_us: float


class Profile(msgspec.Struct, frozen=True):
    """What one tool saw of a stage, in epochs that were not timed.

    With cupti, times and splits of a step are means over all processes, and the rest is of the first one.
    """

    tool: Tool
    epochs: list[int]  # their numbers within a run, from 0
    plain_step_us: Positive  # without the tool: the median of timed runs, with cupti the mean of each process's own
    step_us: float  # under the tool
    seen: Split  # adds up to `step_us`
    split: Split  # what remains when the tool's own time is taken out: adds up to `plain_step_us`
    kernels_per_step: float
    launches_per_step: float  # calls by which the host hands kernels or graphs to the device
    graph_launches_per_epoch: float
    syncs_per_epoch: float  # calls in which the host waits for the device, but for the one that ends the epoch
    sync_us_per_step: float  # the host's time in them
    allocations_per_epoch: dict[str, float]  # calls by name: cudaMalloc, cudaMallocAsync, cudaFree, ...
    busy_share: float  # of the time under the tool, with the union of kernels, copies and fills
    kernels: list[KernelUse]
    copies: list[CopyUse]
    calls: list[CallUse]
    timeline: list[Span]  # three steps in a row, in the middle of an epoch without metrics if any; none in one kernel
    timeline_us: float  # how long they take
    processes: int = 1  # over which times and splits of a step are means
    overlap_us: float = 0.0  # of a step: what kernels take by themselves, less the time in which any of them runs
    first_calls: FirstCalls | None = None  # of rungs that ask what memory costs

    @property
    def slowdown(self) -> float:
        """How much longer a step takes under the tool, as a share."""
        return self.step_us / self.plain_step_us - 1
