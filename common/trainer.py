"""The contract between the harness and everything it times.

A trainer that exists is prepared: its memory is allocated, its data uploaded, its kernels compiled, its graphs
captured. All that remains inside the timer is `run_epoch`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from common.problem import Params


@dataclass(frozen=True)
class EpochMetrics:
    """What training itself saw during one epoch, over all its steps: mean cross-entropy and the share right."""

    mean_loss: float
    accuracy: float


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
