"""cuBLAS GEMM: NVIDIA's library multiplies the matrices, by the algorithm that is fastest for their shapes.

Why: the naive product reads every factor from the caches once for each output, with one thread walking down the whole
of k. cuBLAS tiles through shared memory and registers, and splits k where there are few outputs.

Change: gemm. Same float32, same shapes; TF32 stays off. Its algorithms are tried out while preparing.

Expect: little for softmax regression, where the host's launches are the bound and a product of 10 columns keeps most
of even cuBLAS's blocks idle (7.8 us against roughly 15). With hidden layers the products outweigh the launches, and
the step gets two to four times faster.

Found: with softmax regression more than expected, since the naive product was the bound and not the launches: its 30 us
become 6. With a hidden layer of 256 a process was 10 % slower or 8 % faster than the rung below: a call into cuBLASLt
costs the host 9 us where launching a kernel of one's own costs 4 to 5, five products a step make the host the bound
again, and the faster products only idle. Once a graph takes the launches away, they count.
"""

from __future__ import annotations

from typing import ClassVar

from common.cuda.epilogue import Fusion
from stages.classic import r2_async_metrics
from stages.engine.recipe import FusingGemm
from stages.engine.workspace import Array, Setup


class CublasGemm(FusingGemm):
    """cuBLASLt with a handle and a workspace of its own."""

    needs: ClassVar[tuple[str, ...]] = ("cuda", "cublas")

    def __init__(self, setup: Setup) -> None:
        from common.cuda.cublas import Matmul  # here, since a machine without cuBLAS lists the rung too

        self._matmul = Matmul(setup.device)

    def __call__(
        self,
        a: Array,
        b: Array,
        out: Array,
        *,
        trans_a: bool = False,
        trans_b: bool = False,
        alpha: float = 1.0,
        beta: float = 0.0,
    ) -> None:
        """Enqueue out (m, n) = alpha * op(a) @ op(b) + beta * out."""
        self._matmul(a, b, out, trans_a, trans_b, alpha, beta)

    def fused(
        self,
        a: Array,
        b: Array,
        out: Array,
        fusion: Fusion,
        *,
        trans_a: bool = False,
        trans_b: bool = False,
        alpha: float = 1.0,
        beta: float = 0.0,
    ) -> None:
        """Enqueue out (m, n) = fusion of alpha * op(a) @ op(b) + beta * out."""
        self._matmul(a, b, out, trans_a, trans_b, alpha, beta, fusion)


STAGE = r2_async_metrics.STAGE.climb("cublas", "cuBLAS GEMM", gemm=CublasGemm)
