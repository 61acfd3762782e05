"""cuDNN softmax: NVIDIA's library takes the softmax of the logits.

Why: the hand-written softmax has one thread a row, which walks over its classes three times. cuDNN uses a warp or a
block for a row.

Change: head. Softmax forward is cuDNN's; gradient and totals stay the two kernels they were.

Expect: nothing for softmax regression while the host's launches are the bound: a call into cuDNN costs the host about
what a launch costs. On the GPU 1.4 us against about 3.

Found: slower by 4 us a step for softmax regression, where the host is the bound: a call into cuDNN costs it twice what
a launch costs. The kernel itself is faster, 1.3 us against 2.7, which counts once a graph takes the launches away.
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
        from common.cuda.cudnn import CudnnSoftmax  # here, since a machine without cuDNN lists the rung too

        super().__init__(setup)
        self._forward = CudnnSoftmax(setup.device, setup.tensors.logits, self.probs)

    def softmax(self) -> None:
        """Logits (B, C) to probs (B, C)."""
        self._forward()


STAGE = r4_sparse_metrics.STAGE.climb("cudnn-softmax", "cuDNN softmax", head=CudnnHead)
