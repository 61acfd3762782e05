"""float16: the products on tensor cores, their factors rounded to eleven bits with a narrow range.

Why: bfloat16 has three bits less than tf32, at twice its rate. float16 has as many as tf32 at the rate of bfloat16, but
no normal numbers below 6e-5, and dlogits are probabilities by 128.

Change: gemm. As in bfloat16; gradients are multiplied by a power of two on their way into a fragment, and the product
by its inverse: loss scaling, product by product, exact, and never seen outside of it. cuBLASLt knows no such scale and
takes no part.

Expect: the time of bfloat16, with the errors of tf32.

Found: in the same trial 8.8, 22.0, 30.0, 32.7 and 75 us, as bfloat16 or up to 17 % more, and 383 us for 784-4096x3-10,
where it lacks the library and loses to float32.
"""

from __future__ import annotations

from typing import ClassVar

from stages.engine.recipe import Precision
from stages.tiles import r2_fused_bias
from stages.tiles.tile_gemm import TileGemm


class Float16Gemm(TileGemm):
    """Tiles alone, in float16."""

    precision: ClassVar[Precision] = "float16"
    needs: ClassVar[tuple[str, ...]] = ("cuda", "cublas", "sm_80")
    kernel: ClassVar[tuple[str, str]] = ("tiles/tile_f16.cu", "tile_product_f16")


STAGE = r2_fused_bias.STAGE.climb("fp16", "float16 tensor cores", gemm=Float16Gemm)
