"""What `tune` measured of one GPU and one network, as `tuning.json` keeps it."""

from __future__ import annotations

from pathlib import Path

import msgspec

from ladder.records.run import ResultsError, Spread, write_whole

TUNING = "tuning.json"


class TriedShape(msgspec.Struct, frozen=True):
    """A launch shape, by its place in a heat map, and the time of a launch or why it has none."""

    down: str  # such as `16 x 16` threads
    across: str  # such as `1 x 2` outputs of a thread
    time_us: Spread | None
    left_out: str = ""


class TunedKernel(msgspec.Struct, frozen=True):
    """A kernel for operations of one size, in every shape; the first is the one without any measurement."""

    kernel: str
    sizes: str
    axes: tuple[str, str]  # what stands down and across
    tried: list[TriedShape]
    chosen: int
    was_kept: bool  # measured before, by whichever process

    @property
    def fixed(self) -> TriedShape:
        """Without any measurement."""
        return self.tried[0]

    @property
    def best(self) -> TriedShape:
        """The chosen one."""
        return self.tried[self.chosen]

    @property
    def speedup(self) -> float:
        """How many times as fast the chosen shape is as the one without measurement."""
        first, last = self.fixed.time_us, self.best.time_us
        return first.median / last.median if first and last else 1.0


class TuningRecord(msgspec.Struct, frozen=True):
    """All kernels that a step launches, in the order in which it does."""

    created: str
    command: str
    gpu: str
    network: str  # `784-256-10`
    batch_size: int
    kernels: list[TunedKernel]


def save_tuning(record: TuningRecord, folder: Path) -> None:
    """Write the record into the folder, whole or not at all."""
    write_whole(record, folder / TUNING)


def load_tuning(folder: Path) -> TuningRecord:
    """The record in a folder; ResultsError where it cannot be read."""
    path = folder / TUNING
    try:
        return msgspec.json.decode(path.read_bytes(), type=TuningRecord)
    except (OSError, ValueError, msgspec.MsgspecError) as error:
        raise ResultsError(f"{path}: is no tuning of this program ({error}); measure it again with tune") from error
