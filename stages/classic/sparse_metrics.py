"""Sparse metrics: loss and accuracy are computed in every tenth epoch only.

Why: training does not need its own loss; the gradient comes from the probabilities alone. Totals cost a launch in
every step and a wait at the end of every epoch.

Change: metrics. Totals are computed and read in every `--metrics-every`-th epoch, by default every tenth.

Expect: one launch in nine less, and no wait between epochs: about a tenth faster for softmax regression while the
host is the bottleneck; less where the products are.

Predict: on H200: 784-10, batch 128: 1.1 x of cublas.

Found: nearly one kernel in nine goes, and the GPU works less. But the host is the bottleneck in every recorded network,
and its processes differ by more than a launch (docs/recordings.md), so no recording proves a gain. What is saved counts
where a graph takes the host out of the step.
"""

from __future__ import annotations

from stages.classic import cublas
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


STAGE = cublas.STAGE.climb(
    "sparse-metrics", "Sparse metrics", words="loss computed in every tenth epoch only", metrics=MetricsSparsely
)
