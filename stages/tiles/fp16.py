"""float16: tensor cores multiply, with factors rounded to 11 bits and a narrow range.

Why: bfloat16 has three bits less than tf32, at twice its rate. float16 has tf32's bits at bfloat16's rate, but no
normal numbers below 6e-5, and dlogits are probabilities divided by 128.

Change: gemm. As in bfloat16. Gradients are multiplied by a power of two on their way into a fragment, and the product
by its inverse: loss scaling for each product, exact and invisible outside. cuBLASLt has no such scale and is not
used.

Expect: bfloat16's time, with tf32's errors.

Predict: on H200: 784-10, 784-256-10 and 784-1024-10, batch 128: 1 x of bf16; 784-128x3-10 and 784-4096x3-10, batch 32:
1 x of bf16; 784-784x4-10, batch 64: 1 x of bf16.

Found: as predicted, it takes bfloat16's time where our tiles multiply: the scaling of gradients costs nothing.
784-1024-10 is a tenth behind bfloat16, and 784-4096x3-10 even loses to float32. cuBLASLt has no scale for each
product, so our tiles make wide products that the library makes faster.
"""

from __future__ import annotations

from typing import ClassVar

from stages.engine.recipe import Precision
from stages.tiles import fused_bias
from stages.tiles.tile_gemm import TileGemm


class Float16Gemm(TileGemm):
    """Our tiles alone, in float16."""

    precision: ClassVar[Precision] = "float16"
    needs: ClassVar[tuple[str, ...]] = ("cuda", "cublas", "sm_80")
    kernel: ClassVar[tuple[str, str]] = ("tiles/tile_f16.cu", "tile_product_f16")


STAGE = fused_bias.STAGE.climb("fp16", "float16 tensor cores", words="float16 tensor cores", gemm=Float16Gemm)
