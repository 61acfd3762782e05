"""TF32: the products on tensor cores, their factors rounded to eleven bits.

Why: a multiprocessor multiplies and adds 128 pairs of float32 a cycle, and a warp needs each number in the registers of
many lanes. Products that have the FLOP, 784-256-10's 50 million and more, are bound by that.

Change: gemm. The same tiles, cut the same ways; the four numbers that a lane loads are rounded to tf32 and are its
fragment as they stand. Weights, gradients and sums stay float32. cuBLASLt may use TF32 as well, where it is faster.

Expect: nothing for softmax regression, 7.8 us, where nodes and latency are what is left. 784-256-10, batch 128: 2.2 us
for the large products in place of 3.5, 13 us. 784-1024-10: 20 us. 784-128x3-10, batch 32: 18 us. 784-784x4-10, batch
64: 40 us. 784-4096x3-10, batch 32: bound by memory, as before: 590 MB, 150 us.

Found: in the same trial 9.2, 23.1, 28.9, 29.9, 78 and 243 us, a bit more than fused-bias for softmax regression and a
fourth less for wide layers. Of 784-4096x3-10 the library's products are the fastest; at 22 us for 64 MB of weights each
they reach two thirds of the memory's bandwidth, and the update, 50 us, takes longer than both of those.
"""

from __future__ import annotations

from typing import ClassVar

from stages.engine.recipe import Precision
from stages.tiles import r2_fused_bias
from stages.tiles.tile_gemm import TileGemm


class Tf32Gemm(TileGemm):
    """Tiles or cuBLASLt, in tf32."""

    precision: ClassVar[Precision] = "tf32"
    needs: ClassVar[tuple[str, ...]] = ("cuda", "cublas", "sm_80")
    kernel: ClassVar[tuple[str, str]] = ("tiles/tile_tf32.cu", "tile_product_tf32")


STAGE = r2_fused_bias.STAGE.climb("tf32", "TF32 tensor cores", gemm=Tf32Gemm)
