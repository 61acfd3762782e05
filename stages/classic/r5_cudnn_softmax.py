"""cuDNN softmax: NVIDIA's library computes the softmax of the logits.

Why: in the hand-written softmax one thread takes a row and walks over its classes three times. cuDNN uses a warp or a
block for a row.

Change: head. The forward softmax is cuDNN's; gradient and totals keep their two kernels.

Expect: nothing for softmax regression while the host's launches are the bottleneck: a call into cuDNN costs the host
about one launch. On the GPU 1.4 us against about 3.

Predict: on H200: 784-10, batch 128: 1 x of sparse-metrics.

Found: recorded on an H200, beside `sparse-metrics`: {784-10} us for 784-10 ({to sparse-metrics 784-10}), {784-256-10}
for 784-256-10 ({to sparse-metrics 784-256-10}) and {784-128x3-10} for 784-128x3-10 in batches of 32 ({to sparse-metrics
784-128x3-10}). The differences are within the spread of the processes (docs/recordings.md), as expected. The kernel
itself takes 1.2 us instead of 2.8, which counts once a graph removes the launches.
"""

from __future__ import annotations

from typing import ClassVar

from stages.classic import r4_sparse_metrics
from stages.engine.parts import SeparateHead
from stages.engine.workspace import Setup


class CudnnHead(SeparateHead):
    """Softmax by cudnnSoftmaxForward."""

    needs: ClassVar[tuple[str, ...]] = ("cuda", "cudnn")

    def __init__(self, setup: Setup) -> None:
        from common.cuda.cudnn import CudnnSoftmax  # imported late: a machine without cuDNN still lists the rung

        super().__init__(setup)
        self._forward = CudnnSoftmax(setup.device, setup.tensors.logits, self.probs)

    def softmax(self) -> None:
        """Logits (B, C) to probs (B, C)."""
        self._forward()


STAGE = r4_sparse_metrics.STAGE.climb("cudnn-softmax", "cuDNN softmax", words="cuDNN softmax", head=CudnnHead)
