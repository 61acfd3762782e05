"""The interface between the harness and every timed trainer.

Construction does all preparation: it allocates memory, uploads data, compiles kernels and captures graphs. The timer
runs from the fence before the first `run_epoch` to the fence after the last, with metrics, validation and waiting.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, runtime_checkable

from common.data.dataset import Split
from common.problem import Params


@dataclass(frozen=True)
class EpochMetrics:
    """Mean cross-entropy and accuracy (0 to 1): over one training epoch, or over the test images.

    Of several networks, the means over them, and those of each.
    """

    mean_loss: float
    accuracy: float
    networks: tuple[EpochMetrics, ...] = field(default=(), kw_only=True)

    @classmethod
    def over(cls, networks: Sequence[EpochMetrics]) -> EpochMetrics:
        """The metrics of several networks."""
        count = len(networks)
        loss, accuracy = sum(one.mean_loss for one in networks), sum(one.accuracy for one in networks)
        return cls(loss / count, accuracy / count, networks=tuple(networks))


def mean_of(parts: Sequence[tuple[EpochMetrics, int]]) -> EpochMetrics:
    """Combine metrics of several parts, weighted by their numbers of images."""
    images = sum(count for _, count in parts)
    return EpochMetrics(
        sum(part.mean_loss * count for part, count in parts) / images,
        sum(part.accuracy * count for part, count in parts) / images,
    )


class Trainer(Protocol):
    """Trains one problem on one data split; parameters and metrics of several networks are theirs together."""

    detail: str
    """Text beside the stage's title in reports, for example `CPU, 2 BLAS threads`; may be empty."""

    device: Literal["cpu", "gpu"]
    """The device that trains."""

    cuda_stream: int | None
    """Handle of the CUDA stream of the epochs, for the harness's events; None without one."""

    def load_params(self, params: Params) -> None:
        """Start from these parameters, and the optimizer's state in them. Every run gets new ones. Not timed."""

    def run_epoch(self, epoch: int) -> None:
        """Train on every full batch once, in order. May return before the device has finished.

        A trainer whose library launches from its own threads also needs `wait`: see `WaitingTrainer`.
        `epoch` counts from 0 in each run and decides when metrics are due. Short runs that are checked may have more
        epochs than the problem, and a run may go on after its parameters were read.
        """

    def last_metrics(self) -> EpochMetrics | None:
        """Metrics of the last epoch, or None if it computed none. Reads host memory only.

        The run takes `float()` of both before its last fence, inside the time.
        """

    def read_params(self) -> Params:
        """The current parameters and optimizer's state as float32 NumPy arrays on the host, with no work left to do.

        Not timed as part of the run, but bounded: the harness copies them at the run's end while a clock runs.
        """

    def close(self) -> None:
        """Release all resources; the trainer is not used again."""


@runtime_checkable
class WaitingTrainer(Trainer, Protocol):
    """A trainer whose epochs may reach the device after `run_epoch` has returned, so that the fence may miss them."""

    def wait(self) -> None:
        """Return when all epochs have finished. Timed; called once, after a run's last epoch and before the fence."""


def wait_of(trainer: Trainer) -> Callable[[], None]:
    """The trainer's `wait`, or a function that does nothing: all other trainers need the fence alone."""
    return trainer.wait if isinstance(trainer, WaitingTrainer) else _nothing


def _nothing() -> None:
    pass


@runtime_checkable
class ValidatingTrainer(Trainer, Protocol):
    """A trainer that can evaluate the test images during a run. `--validate-every` skips all others."""

    def prepare_validation(self, test: Split) -> None:
        """Do all preparation for `validate`. Called once, after construction."""

    def validate(self) -> EpochMetrics:
        """Loss and accuracy on all test images with the current parameters. Timed; called after an epoch.

        Uses the stage's own forward pass and device, in batches of the problem's size; the last may be smaller.
        """
