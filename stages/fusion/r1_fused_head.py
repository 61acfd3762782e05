"""Fused head: softmax, cross-entropy, its gradient and the totals are one kernel.

Why: cuDNN writes the probabilities to memory, where the next kernel reads them only to subtract a one from each row and
to divide by the batch; in epochs with metrics a third kernel goes over the same logits. For 128 rows of 10 classes each
of them takes about what a node of a graph takes anyway, 1.3, 1.05 and 2.3 us on an H200: it computes next to nothing.

Change: head. A warp takes a row, finds its largest logit and its sum by shuffles, and writes the gradient at once. In
epochs with metrics a single block takes all rows and adds up the totals on its way, in a fixed order.

Expect: 1.3 us in place of 2.35, and from one node to the next once instead of twice: 1.5 us less a step whatever the
model, 16 us instead of 17.4 for softmax regression, 35 instead of 36.6 with a hidden layer of 256. In epochs with
metrics about 2.5 us in place of 4.65, though one multiprocessor does all of it. Nothing is left to win here for batches
of thousands, where memory is the bound and metrics wait for that one block.

Found: 0.2 us less for softmax regression (17.4) and 0.3 with a hidden layer of 256 (36.9). The one kernel takes 2.1 us,
as seen by CUPTI, where the two took 1.3 each: a warp's two reductions are ten shuffles that wait for each other, behind
exponentials that wait for a load, and the two had hidden half of that in what a node takes anyway. In a trial, a
version with a pass of its own for the largest logit took 2.0 us.
"""

from __future__ import annotations

from typing import ClassVar

from stages.classic import r6_cuda_graph
from stages.engine.parts import blocks, int32
from stages.engine.recipe import Head
from stages.engine.workspace import Array, Setup

WARP = 32
ROWS = 4  # of a block, a warp each
HEAD_WARPS = 32  # of the one block that adds up totals, as in softmax.cu


class FusedHead(Head):
    """All of the head in one kernel."""

    needs: ClassVar[tuple[str, ...]] = ("cuda",)

    def __init__(self, setup: Setup) -> None:
        self._tensors = setup.tensors
        rows, classes = setup.tensors.logits.shape
        self._grid = blocks(rows, ROWS)
        self._sizes = (int32(rows), int32(classes))
        self._kernel = setup.kernel("plain/softmax.cu", "softmax_xent")

    def __call__(self, labels: Array, with_totals: bool) -> None:
        """Logits (B, C) to dlogits (B, C); adds to the totals when asked."""
        grid, warps = (1, HEAD_WARPS) if with_totals else (self._grid, ROWS)
        tensors = (self._tensors.logits, labels, self._tensors.dlogits, self._tensors.totals)
        self._kernel(grid, warps * WARP, *tensors, *self._sizes, int32(with_totals))


STAGE = r6_cuda_graph.STAGE.climb("fused-head", "Fused head", group="beyond", head=FusedHead)
