"""What a GPU can do at best and what follows from it for a stage, as `results.json` keeps both."""

from __future__ import annotations

from typing import Literal

import msgspec

from ladder.records.profile import Positive

Unit = Literal["us", "GB/s", "TFLOP/s"]
SHARED = "another process had the GPU as well; end it, and measure anew"  # why a primitive was left out


class Limit(msgspec.Struct, frozen=True):
    """One primitive: the middle and the ends of some samples, in its unit."""

    name: str
    title: str
    unit: Unit
    median: Positive
    min: Positive
    max: Positive

    @property
    def best(self) -> float:
        """The shortest time or the highest rate: what a floor is made of."""
        return self.min if self.unit == "us" else self.max

    @property
    def spread(self) -> float:
        """How far the samples lie apart, as a share of their middle."""
        return (self.max - self.min) / self.median


class Chip(msgspec.Struct, frozen=True):
    """What the driver says of the GPU that was measured."""

    multiprocessors: int
    l2_bytes: int
    on_chip_bytes: int  # shared memory and registers of all multiprocessors together
    block_shared_bytes: int = 0  # that one block can have at most; 0 in records that lack it


class LimitsRecord(msgspec.Struct, frozen=True):
    """All primitives of one GPU, in the order of the table."""

    chip: Chip
    limits: list[Limit]
    skipped: dict[str, str]  # the titles of primitives that are not in `limits`, each with the reason
    seconds: float  # that measuring took

    def get(self, name: str) -> Limit | None:
        """The primitive of this name; None where it was left out."""
        return next((limit for limit in self.limits if limit.name == name), None)


class DesignFloor(msgspec.Struct, frozen=True):
    """What a step of a stage takes at least, given its own kernels, launches and waits; all in us."""

    launching_us: float  # the host's time for its launches
    kernels_us: float  # the device's time for its kernels, which may overlap with launching
    waiting_us: float  # what the host's waits add to the longest of the others
    exchanging_us: float = 0.0  # what exchanges within its kernels take, during which kernels may compute

    @property
    def total_us(self) -> float:
        """The floor."""
        return max(self.launching_us, self.kernels_us, self.exchanging_us) + self.waiting_us


class Floor(msgspec.Struct, frozen=True):
    """What a step takes at least; common/cost.py says how both are made."""

    physical_us: float  # of the problem, whatever the stage: a time below it is impossible
    design: DesignFloor | None  # null where launches and kernels were not counted

    @property
    def design_us(self) -> float | None:
        """The floor of the stage's own design, which is never below that of the problem."""
        return None if self.design is None else max(self.design.total_us, self.physical_us)
