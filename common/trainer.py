"""The contract between the harness and everything it times.

A trainer that exists is prepared: its memory is allocated, its data uploaded, its kernels compiled, its graphs
captured. All that remains inside the timer is `run_epoch`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

from common.data.dataset import Split
from common.problem import Params


@dataclass(frozen=True)
class EpochMetrics:
    """Mean cross-entropy and the share right, of what training saw in an epoch or of the test images after it."""

    mean_loss: float
    accuracy: float


def mean_of(parts: Sequence[tuple[EpochMetrics, int]]) -> EpochMetrics:
    """The metrics of several parts, each of so many images, as one."""
    images = sum(count for _, count in parts)
    return EpochMetrics(
        sum(part.mean_loss * count for part, count in parts) / images,
        sum(part.accuracy * count for part, count in parts) / images,
    )


class Trainer(Protocol):
    """One way of training one problem on one data split."""

    detail: str
    """What a row should say beside the stage's title, such as `CPU, 2 BLAS threads`; empty when there is nothing."""

    device: Literal["cpu", "gpu"]
    """Where it trains."""

    cuda_stream: int | None
    """The handle of the CUDA stream that the epochs run on, for the harness's events; None when there is none."""

    def load_params(self, params: Params) -> None:
        """Start from these parameters; the harness picks new ones for every run. Outside the timer."""

    def run_epoch(self, epoch: int) -> None:
        """Train on every full batch once, in order; may return before the device has finished.

        `epoch` counts from 0 within a run, and tells when metrics are due.
        """

    def last_metrics(self) -> EpochMetrics | None:
        """The metrics of the last epoch if it computed them, read from the host's memory (no device work)."""

    def read_params(self) -> Params:
        """The parameters as they are now, float32, on the host."""

    def close(self) -> None:
        """Give everything back; the trainer is not used again."""


@runtime_checkable
class ValidatingTrainer(Trainer, Protocol):
    """A trainer that can look at the test images within a run, for `--validate-every`; others are skipped there."""

    def prepare_validation(self, test: Split) -> None:
        """Allocate, upload, compile and capture what `validate` takes. Once, after the trainer itself is prepared."""

    def validate(self) -> EpochMetrics:
        """Loss and accuracy on all test images, from the parameters as they are now. Within the timer, after an epoch.

        By the stage's own forward pass, on its own device, in batches of the problem's size of which the last may be
        smaller.
        """
