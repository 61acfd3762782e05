"""The profile of a stage, as `results.json` keeps it: counts, times, and the parts of a step's time.

A time is taken on the GPU's or the host's clock, depending on which did the work. "A step" is the mean over the
profiled epochs, where epochs with and without metrics are weighted as often as they occur in a run.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec

Positive = Annotated[float, msgspec.Meta(gt=0)]
Tool = Literal["nsys", "cupti", "stamps"]
Row = Literal["host", "gpu", "cpu"]
Kind = Literal["gemm", "layer", "softmax", "update", "fused", "copy", "launch", "wait", "other"]
"""The purpose of a kernel or a call, declared beside it or known by its name; figures use it as the colour."""


class Split(msgspec.Struct, frozen=True):
    """The parts of a step's time, in us; they add up to the step.

    On the CPU, means over the threads: in compiled kernels, at barriers (waiting), and in Python (launching).
    """

    kernels_us: float  # the device runs at least one kernel
    copies_us: float  # the device copies or fills memory, and runs no kernel
    queued_us: float  # the device is idle although the host had already submitted the next work
    launching_us: float  # the device is idle because the host has not submitted the next work yet
    waiting_us: float  # the device is idle because the host waits for it: a synchronisation or a read-back

    @property
    def total_us(self) -> float:
        """The whole step."""
        return self.kernels_us + self.copies_us + self.queued_us + self.launching_us + self.waiting_us

    @property
    def work_us(self) -> float:
        """The time in which the device works."""
        return self.kernels_us + self.copies_us

    @classmethod
    def mean(cls, splits: Sequence[Split]) -> Split:
        """The mean of each part over at least one split."""
        return cls(*(statistics.fmean(getattr(split, part) for split in splits) for part in cls.__struct_fields__))


class KernelUse(msgspec.Struct, frozen=True):
    """One kernel of a step, identified by its place if all steps run the same kernels, otherwise by its name.

    A kernel on the CPU has a block for each thread, and its time in a step is the mean over the threads.
    """

    name: str  # without template arguments
    kind: Kind
    place: int | None  # from 0, in order of their start; null if kernels are summed by name
    per_step: float
    us_per_step: float
    us_each: float  # median of its runs
    registers: int  # per thread
    shared_bytes: int  # per block
    blocks: int
    threads: int  # per block
    cluster: int  # blocks per cluster; 1 without clusters
    occupancy: float | None  # resident warps of a multiprocessor, as a share of its maximum
    bytes: int | None  # the least traffic of the operation: each input read once, each output written once


class CopyUse(msgspec.Struct, frozen=True):
    """All copies in one direction, or all fills."""

    direction: Literal["host to device", "device to host", "device to device", "fill", "other"]
    per_epoch: float
    bytes_per_epoch: float
    us_per_step: float
    hidden_us_per_step: float = 0.0  # the part during which a kernel ran as well


class CallUse(msgspec.Struct, frozen=True):
    """A function of the CUDA runtime or driver that submits work, waits or allocates."""

    name: str
    per_epoch: float
    us_per_step: float  # host time in the call


class FirstCalls(msgspec.Struct, frozen=True):
    """Allocator calls by name, from before the epochs that a profile covers."""

    preparing: dict[str, int]  # while a trainer was built, including its trial step
    first_epoch: dict[str, int]  # in that trainer's first epoch


class Span(msgspec.Struct, frozen=True, omit_defaults=True):
    """A bar of the timeline."""

    row: Row
    name: str
    kind: Kind
    start_us: float  # from the start of the excerpt
    duration_us: float
    thread: int = 0  # of the CPU, from 0


class Profile(msgspec.Struct, frozen=True):
    """The profile that one tool took of a stage, in epochs that were not timed.

    With CUPTI and time stamps, step times and splits are means over all processes; everything else comes from the first
    process.
    """

    tool: Tool
    epochs: list[int]  # their numbers within a run, from 0
    plain_step_us: Positive  # without the tool: the median of timed runs; with CUPTI, the mean over processes
    step_us: float  # under the tool
    seen: Split  # adds up to `step_us`
    split: Split  # with the tool's own time removed; adds up to `plain_step_us`
    kernels_per_step: float
    launches_per_step: float  # calls that submit kernels or graphs
    graph_launches_per_epoch: float
    syncs_per_epoch: float  # calls in which the host waits for the device, except the fence that ends the epoch
    sync_us_per_step: float  # host time in those calls
    allocations_per_epoch: dict[str, float]  # calls by name: cudaMalloc, cudaMallocAsync, cudaFree, ...
    busy_share: float  # share of the time under the tool in which a kernel, copy or fill runs
    kernels: list[KernelUse]
    copies: list[CopyUse]
    calls: list[CallUse]
    timeline: list[Span]  # three steps in mid-epoch, preferably without metrics; empty if one kernel runs many steps
    timeline_us: float  # duration of those steps
    processes: int = 1  # number of processes in the means
    overlap_us: float = 0.0  # per step: the sum of kernel times, less the time in which any kernel runs
    first_calls: FirstCalls | None = None  # of rungs that allocate, in records before version 0.4

    @property
    def slowdown(self) -> float:
        """The additional time of a step under the tool, as a share."""
        return self.step_us / self.plain_step_us - 1
