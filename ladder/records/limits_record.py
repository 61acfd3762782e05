"""The measured limits of a GPU, and the bounds that follow for a stage, as `results.json` keeps them."""

from __future__ import annotations

from typing import Literal

import msgspec

from ladder.records.profile import Positive

Unit = Literal["us", "GB/s", "TFLOP/s", "GFLOP/s"]
# The reason that records keep for a skipped primitive: readers compare it, so it must not change.
SHARED = "another process had the GPU as well; end it, and measure anew"


class Limit(msgspec.Struct, frozen=True):
    """One primitive: median, minimum and maximum of its samples, in its unit."""

    name: str
    title: str
    unit: Unit
    median: Positive
    min: Positive
    max: Positive

    @property
    def best(self) -> float:
        """The shortest time or the highest rate; bounds use it."""
        return self.min if self.unit == "us" else self.max

    @property
    def spread(self) -> float:
        """The range of the samples, as a share of their median."""
        return (self.max - self.min) / self.median


class Chip(msgspec.Struct, frozen=True):
    """Sizes of the measured GPU, as the driver reports them."""

    multiprocessors: int
    l2_bytes: int
    on_chip_bytes: int  # shared memory and registers of all multiprocessors together
    block_shared_bytes: int = 0  # the most shared memory that one block can use; 0 in older records


class LimitsRecord(msgspec.Struct, frozen=True):
    """All primitives of one GPU, in the order of the table."""

    chip: Chip
    limits: list[Limit]
    skipped: dict[str, str]  # titles of primitives without a limit, each with the reason
    seconds: float  # spent measuring
    measured: str = ""  # ISO 8601, UTC, by an earlier run of that day; empty if this run measured them

    def get(self, name: str) -> Limit | None:
        """The primitive of this name; None if it was skipped."""
        return next((limit for limit in self.limits if limit.name == name), None)


class DesignFloor(msgspec.Struct, frozen=True, omit_defaults=True):
    """The floor of one stage's design: the least time of a step with its own kernels, launches and waits; all in us."""

    launching_us: float  # the host's time for the launches
    kernels_us: float  # the device's time for the kernels; overlaps with launching
    waiting_us: float  # added to the longest of the others by the host's waits
    exchanging_us: float = 0.0  # data exchanges within kernels; overlaps with their computing
    flops: float = 0.0  # of the step's matrix products; 0 in older records, here and below
    bytes: float = 0.0  # that the kernels exchange with L2 or memory, at least
    arithmetic: str = ""  # how the products are computed, such as `3 x tf32 (2 with images)`

    @property
    def total_us(self) -> float:
        """The least time of a step, in us."""
        return max(self.launching_us, self.kernels_us, self.exchanging_us) + self.waiting_us


class StepBounds(msgspec.Struct, frozen=True, omit_defaults=True):
    """What bounds the time of a step from below; `common/cost.py` has the formulas."""

    cheat_limit_us: float = msgspec.field(name="physical_us")  # no honest stage is faster: a shorter time fails
    design: DesignFloor | None  # null if launches and kernels were not counted

    @property
    def design_floor_us(self) -> float | None:
        """The floor of the stage's design in us, never below the cheat limit; None without a design."""
        return None if self.design is None else max(self.design.total_us, self.cheat_limit_us)
