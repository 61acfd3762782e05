"""Sparse metrics: loss and accuracy are computed in every tenth epoch only.

Why: training does not need its own loss; the gradient comes from the probabilities alone. Totals cost a launch in
every step and a wait at the end of every epoch.

Change: metrics. Totals are computed and read in every `--metrics-every`-th epoch, by default every tenth.

Expect: one launch in nine less, and no wait between epochs: about a tenth faster for softmax regression while the
host is the bottleneck; less where the products are.

Predict: on H200: 784-10, batch 128: 1.1 x of cublas.

Found: recorded on an H200, beside `cublas`: {784-10} us for 784-10 ({to cublas 784-10}), {784-256-10} for 784-256-10
({to cublas 784-256-10}) and {784-128x3-10} for 784-128x3-10 in batches of 32 ({to cublas 784-128x3-10}). The host is
the bottleneck in all three, and its processes differ by as much (docs/recordings.md), so none of these recordings
proves a gain: in an earlier one 784-10 went from 13 % faster to 24 % slower. The profile of 784-10 has 8.1 kernels a
step instead of 9, and 2.2 us less of the GPU's work.
"""

from __future__ import annotations

from stages.classic import r3_cublas
from stages.engine.parts import EpochTotals
from stages.engine.workspace import Setup


class MetricsSparsely(EpochTotals):
    """Loss and accuracy in every `metrics_every`-th epoch, read at its end."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._problem = setup.problem

    def due(self, epoch: int) -> bool:
        """Every `metrics_every`-th epoch."""
        return self._problem.metrics_due(epoch)


STAGE = r3_cublas.STAGE.climb(
    "sparse-metrics", "Sparse metrics", words="loss computed in every tenth epoch only", metrics=MetricsSparsely
)
