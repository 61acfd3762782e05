"""cuDNN softmax: NVIDIA's library computes the softmax of the logits.

Why: in the hand-written softmax one thread takes a row and walks over its classes three times. cuDNN uses a warp or a
block for a row.

Change: head. The forward softmax is cuDNN's; gradient and totals keep their two kernels.

Expect: nothing for softmax regression while the host's launches are the bottleneck: a call into cuDNN costs the host
about one launch. On the GPU 1.4 us against about 3.

Predict: on H200: 784-10, batch 128: 1 x of sparse-metrics.

Found: as predicted, a step takes as long as before, within noise: a call into cuDNN costs the host about as much as the
launch that it replaces, and the host is the bottleneck. The kernel itself takes about half as long as the hand-written
one, which counts once a graph removes the launches.
"""

from __future__ import annotations

from typing import ClassVar

from stages.classic import sparse_metrics
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


STAGE = sparse_metrics.STAGE.climb("cudnn-softmax", "cuDNN softmax", words="cuDNN softmax", head=CudnnHead)
