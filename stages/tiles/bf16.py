"""bfloat16: tensor cores multiply, with factors rounded to 8 bits and float32's range.

Why: a tensor core multiplies 16-bit numbers at twice its tf32 rate.

Change: gemm. As in tf32, with half as many instructions. Weights stay float32 in memory, and only fragments are
bfloat16. So no copy of the weights has to be kept up to date, but no memory traffic is saved either.

Expect: tf32's times within 5%: latency and loads limit products of this size. A tenth less in 784-784x4-10 with
batches of 64, where they do not.

Predict: on H200: 784-10, 784-256-10 and 784-1024-10, batch 128: 0.95 to 1.05 x of tf32; 784-128x3-10 and 784-4096x3-10,
batch 32: 0.95 to 1.05 x of tf32; 784-784x4-10, batch 64: 1.1 x of tf32.

Found: as predicted, it is as fast as TF32 within a few per cent: latency and loads bind these products, and the tensor
cores' rate does not. Weights stay float32 in memory, so no traffic is saved. 784-784x4-10 was to be a tenth faster
than TF32 and hardly is; why is not explained.
"""

from __future__ import annotations

from typing import ClassVar

from stages.engine.recipe import Precision
from stages.tiles import fused_bias
from stages.tiles.tile_gemm import TileGemm


class BFloat16Gemm(TileGemm):
    """Our tiles or cuBLASLt, in bfloat16."""

    precision: ClassVar[Precision] = "bfloat16"
    needs: ClassVar[tuple[str, ...]] = ("cuda", "cublas", "sm_80")
    kernel: ClassVar[tuple[str, str]] = ("tiles/tile_bf16.cu", "tile_product_bf16")


STAGE = fused_bias.STAGE.climb("bf16", "bfloat16 tensor cores", words="bfloat16 tensor cores", gemm=BFloat16Gemm)
