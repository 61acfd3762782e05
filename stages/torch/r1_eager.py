"""The usual loop: a DataLoader brings batches, PyTorch runs each operation, and the host reads the loss.

Why: This is what most tutorials write, so it is what a reader's training takes today.
Change: Nothing yet. `zero_grad`, forward, loss, backward, `step`, `scheduler.step()`, `.item()` in every step.
Expect: On an H200 with a slow host 2,000 to 8,000 us per step for models of 10,000 to 500,000 parameters. The GPU is
idle for more than nine tenths of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from stages.torch.training_step import Arithmetic, Compiler, Rung, TrainingStep
from stages.torch.user_model import Batch, nested, tensors_of

if TYPE_CHECKING:
    from stages.torch.trainer import Trainer


class LoaderBatches:
    """A DataLoader in this process; each batch is copied to the device, and the host waits for the copy."""

    options: dict[str, Any] = {}  # noqa: RUF012  # of the DataLoader
    asynchronous = False  # copies
    needs_resident = False

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer
        self._batches: Iterator[Batch] | None = None
        self._buffers: Batch | None = None

    def start(self, row: int) -> None:
        """Begin a new pass at this row of the order."""
        self._batches = self._trainer.data.loader(row, **self.options)

    def next(self) -> Batch:
        """The next batch, on the device."""
        assert self._batches is not None
        return self._trainer.on_device(next(self._batches), asynchronous=self.asynchronous)

    def in_graph(self) -> Batch:
        """Buffers that `before_replay` fills."""
        assert self._buffers is not None
        return self._buffers

    def before_replay(self) -> None:
        """Copy the next batch into the buffers."""
        assert self._batches is not None
        if self._buffers is None:
            self._buffers = nested(lambda tensor: tensor.clone(), self.next())
            return
        for buffer, tensor in zip(tensors_of(self._buffers), tensors_of(tuple(next(self._batches))), strict=True):
            buffer.copy_(tensor, non_blocking=self.asynchronous)

    def close(self) -> None:
        """End the pass, with its workers."""
        self._batches = None


class ReadMetrics:
    """The host reads the loss and every metric in each step, as `.item()` does."""

    def __init__(self, trainer: Trainer) -> None:
        self._kept: dict[str, Any] = trainer.scalars()
        self._totals = dict.fromkeys(self._kept, 0.0)
        self._in_graph = trainer.is_captured

    def take(self, values: dict[str, Any]) -> None:
        """Keep a step's values for the host to read; a graph writes them to the same place in every replay."""
        if not self._in_graph:
            self._kept = values
            return
        for name, value in values.items():
            self._kept[name].copy_(value)

    def after_replay(self) -> None:
        """Read them."""
        for name, value in self._kept.items():
            self._totals[name] += value.item()

    def total(self, name: str) -> float:
        """The sum over all steps so far."""
        return self._totals[name]


def as_written(trainer: Trainer, written: Any, *, is_captured: bool) -> Any:
    """The user's own optimizer."""
    return trainer.rebuilt(written, is_captured=is_captured)


class LaunchEach:
    """The host launches every kernel."""

    steps = 0

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer

    def run(self, steps: int) -> None:
        """Train for so many steps."""
        trainer = self._trainer
        for _ in range(steps):
            trainer.step(trainer.batches.next())
            trainer.metrics.after_replay()
            trainer.advance()


RUNG = Rung(
    "eager",
    "the usual loop: DataLoader, .item() per step",
    TrainingStep(
        batches=LoaderBatches,
        metrics=ReadMetrics,
        optimizer=as_written,
        arithmetic=Arithmetic("float32"),
        compiler=Compiler(),
        layout="contiguous",
        launch=LaunchEach,
    ),
)
