"""Triton skinny: `skinny-gemm` in Triton: products for few columns, with bias and ReLU in the same kernel.

Why: this is where the library is weakest, and where most people would write a kernel of their own. This rung is the
twin of `skinny-gemm`: same parent, same part, another language, and cuBLASLt is again among the candidates.

Change: gemm. A program takes a tile of outputs by `tl.dot`. Where tiles are few, several programs share k. Triton
cannot add up across a cluster's shared memory: each program leaves its sums in memory, counts itself, and the last one
adds them up in order.

Expect: 1 us more for softmax regression than `skinny-gemm`. Its first product divides k, and the way through memory, an
atomic and a second wait takes 1 us more than a cluster's. 784-256-10 has two such products, and Triton's float32 `dot`
is less good for the two large ones: 4 us more.

Predict: on H100: 784-10, batch 128: 0.9 x of skinny-gemm; 784-256-10, batch 128: 0.8 x of skinny-gemm.

Found: it is faster than its twin, where slower was expected, although sums go through memory and an atomic. A kernel
compiled for one product has few instructions and registers, where ours holds every fusion (docs/languages.md). Its
trials leave no product of 784-256-10 to the library, and ours leave it the large update.
"""

from __future__ import annotations

from typing import Any, ClassVar

from stages.engine.workspace import Array, Setup
from stages.fusion import fused_epilogue
from stages.languages.triton_launch import trials
from stages.languages.triton_products import TritonProducts
from stages.tiles.tile_gemm import TileGemm


class TritonGemm(TileGemm):
    """Our Triton kernel or cuBLASLt, in float32."""

    needs: ClassVar[tuple[str, ...]] = ("cuda", "cublas", "triton")

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._products: Any = TritonProducts(setup)  # called as our tiles are
        self._trials = trials(setup)

    def own(self, a: Array) -> tuple[Any, Array]:
        """The Triton kernel, for any factors."""
        return self._products, a


STAGE = fused_epilogue.STAGE.climb(
    "triton-skinny", "Triton skinny", group="languages", words="skinny-gemm, written in Triton", gemm=TritonGemm
)
