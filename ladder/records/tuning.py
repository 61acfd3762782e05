"""The launch shapes that `tune` measured for one GPU and one network, as `tuning.json` keeps them."""

from __future__ import annotations

from pathlib import Path

import msgspec

from ladder.records.run import ResultsError, Spread, write_whole

TUNING = "tuning.json"


class TriedShape(msgspec.Struct, frozen=True):
    """A launch shape, its row and column in the heat map, and its launch time or the reason why there is none."""

    down: str  # such as `16 x 16` threads
    across: str  # such as `1 x 2` outputs of a thread
    time_us: Spread | None
    left_out: str = ""


class TunedKernel(msgspec.Struct, frozen=True):
    """A kernel at one operation size, in every launch shape; the first shape is the default."""

    kernel: str
    sizes: str
    axes: tuple[str, str]  # titles of the heat map's rows and columns
    tried: list[TriedShape]
    chosen: int  # index into `tried`
    was_kept: bool  # taken from the cache, where an earlier process put it

    @property
    def fixed(self) -> TriedShape:
        """The default shape, chosen without measuring."""
        return self.tried[0]

    @property
    def best(self) -> TriedShape:
        """The chosen shape."""
        return self.tried[self.chosen]

    @property
    def speedup(self) -> float:
        """The default shape's time as a multiple of the chosen one's; 1 if either has no time."""
        first, last = self.fixed.time_us, self.best.time_us
        return first.median / last.median if first and last else 1.0


class TuningRecord(msgspec.Struct, frozen=True):
    """All kernels of a step, in launch order."""

    created: str
    command: str
    gpu: str
    network: str  # `784-256-10`
    batch_size: int
    kernels: list[TunedKernel]


def save_tuning(record: TuningRecord, folder: Path) -> None:
    """Write the record into the folder atomically."""
    write_whole(record, folder / TUNING)


def load_tuning(folder: Path) -> TuningRecord:
    """The record in a folder; raises ResultsError if it cannot be read."""
    path = folder / TUNING
    try:
        return msgspec.json.decode(path.read_bytes(), type=TuningRecord)
    except (OSError, ValueError, msgspec.MsgspecError) as error:
        raise ResultsError(f"{path}: not a tuning record of this program ({error}); run tune again") from error
