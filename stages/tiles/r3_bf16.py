"""bfloat16: the products on tensor cores, their factors rounded to eight bits with the range of float32.

Why: tf32 gets half the rate out of a tensor core that sixteen bits do.

Change: gemm. As in tf32, with half as many instructions. Weights stay float32, here and in memory: only fragments are
bfloat16, so that no copy of the weights has to be kept up to date, and no memory traffic is saved either.

Expect: what tf32 takes, within 5 %: products of this size are bound by latency and loads. A tenth less where they are
not, 784-784x4-10 with batches of 64.

Found: in the same trial 8.7, 21.6, 27.5, 27.9, 74 and 240 us: 5 to 7 % less than tf32, and 1 % where memory is
the bound: it loads the same bytes, but there are half as many instructions between a load and a sum.
"""

from __future__ import annotations

from typing import ClassVar

from stages.engine.recipe import Precision
from stages.tiles import r2_fused_bias
from stages.tiles.tile_gemm import TileGemm


class BFloat16Gemm(TileGemm):
    """Tiles or cuBLASLt, in bfloat16."""

    precision: ClassVar[Precision] = "bfloat16"
    needs: ClassVar[tuple[str, ...]] = ("cuda", "cublas", "sm_80")
    kernel: ClassVar[tuple[str, str]] = ("tiles/tile_bf16.cu", "tile_product_bf16")


STAGE = r2_fused_bias.STAGE.climb("bf16", "bfloat16 tensor cores", gemm=BFloat16Gemm)
