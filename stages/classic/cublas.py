"""cuBLAS GEMM: NVIDIA's library multiplies the matrices, with its fastest algorithm for each shape.

Why: in the naive product one thread walks over all of k, and every output reads its factors from the caches again.
cuBLAS uses tiles in shared memory and registers, and splits k if there are few outputs.

Change: gemm. Same float32; TF32 stays off. Preparation times the library's algorithms. Inputs and hidden units are
padded with zeros to multiples of four, whose rows the library reads fastest.

Expect: little for softmax regression. The host's launches are the bottleneck there, and a product of 10 columns
leaves most of cuBLAS's blocks idle (7.8 us against roughly 15). With hidden layers the products outweigh the
launches, and the step gets two to four times faster.

Predict: on H200: 784-10, batch 128: 1 to 1.1 x of async; 784-256-10 and 784-1024-10, batch 128: 2 to 4 x of async;
784-128x3-10, batch 32: 2 to 4 x of async.

Found: the products become several times as fast on the GPU, but a call into cuBLASLt costs the host about two launches
of a hand-written kernel, so the host becomes the bottleneck again. No recorded step is faster beyond noise, not even
with hidden layers, where two to four times were predicted. The faster products count once `cuda-graph` removes the
launches.
"""

from __future__ import annotations

from typing import ClassVar

from common.cuda.epilogue import Fusion
from stages.classic import async_metrics
from stages.engine.recipe import FusingGemm
from stages.engine.workspace import Array, Setup


class CublasGemm(FusingGemm):
    """Products by cuBLASLt, with a private handle and workspace."""

    needs: ClassVar[tuple[str, ...]] = ("cuda", "cublas")
    width_multiple: ClassVar[int] = 4  # float32 numbers of sixteen bytes: other rows take the library's slower kernels

    def __init__(self, setup: Setup) -> None:
        from common.cuda.cublas import Matmul  # imported late: a machine without cuBLAS still lists the rung

        self._matmul = Matmul(setup.device)

    def fused(
        self,
        a: Array,
        b: Array,
        out: Array,
        fusion: Fusion | None,
        *,
        trans_a: bool = False,
        trans_b: bool = False,
        alpha: float = 1.0,
        beta: float = 0.0,
    ) -> None:
        """Enqueue out (m, n) = fusion of alpha * op(a) @ op(b) + beta * out; None is no fusion."""
        self._matmul(a, b, out, trans_a, trans_b, alpha, beta, fusion)


STAGE = async_metrics.STAGE.climb("cublas", "cuBLAS GEMM", words="cuBLAS matrix products", gemm=CublasGemm)
