"""Fused head: one kernel computes softmax, loss, their gradient and the totals.

Why: cuDNN writes the probabilities to memory; the next kernel reads them only to subtract a one from each row and to
divide by the batch. In epochs with metrics a third kernel reads the same logits. For 128 rows of 10 classes they take
1.3, 1.05 and 2.3 us on an H200, about one node of a graph each: they compute next to nothing.

Change: head. A warp takes a row, finds its largest logit and its sum by shuffles, and writes the gradient. In epochs
with metrics a single block takes all rows and adds up the totals in a fixed order.

Expect: 1.3 us in place of 2.35, and one node less: 1.5 us less a step for every model, 16 us instead of 17.4 for
softmax regression, 35 instead of 36.6 with a hidden layer of 256. In epochs with metrics about 2.5 us in place of
4.65, though on one multiprocessor. No gain for batches of thousands, where memory is the bottleneck and metrics wait
for that one block.

Predict: on H200: 784-10, 784-256-10 and 784-1024-10, batch 128: 1.5 us less than cuda-graph; 784-128x3-10, batch 32:
1.5 us less than cuda-graph.

Found: recorded on an H200: {784-10} us instead of {cuda-graph 784-10} for 784-10, {784-256-10} instead of {cuda-graph
784-256-10} for 784-256-10, {784-1024-10} instead of {cuda-graph 784-1024-10} for 784-1024-10. CUPTI sees 2.0 us for the
one kernel and 1.3 for each of the two: a warp's reductions are ten dependent shuffles behind exponentials that wait for
a load, and the two kernels hid half of that in the time between nodes. A version with a separate pass for the largest
logit also took 2.0 us in a trial.
"""

from __future__ import annotations

from stages.classic import r6_cuda_graph
from stages.engine.parts import blocks, int32
from stages.engine.recipe import Head
from stages.engine.workspace import Array, Setup

WARP = 32
ROWS = 4  # of a block, one a warp
HEAD_WARPS = 32  # of the block that adds up totals, as in softmax.cu


class FusedHead(Head):
    """The whole head in one kernel."""

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


STAGE = r6_cuda_graph.STAGE.climb(
    "fused-head", "Fused head", words="softmax, loss and gradient in one kernel", group="beyond", head=FusedHead
)
