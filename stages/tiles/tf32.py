"""TF32: tensor cores multiply, with factors rounded to 11 bits.

Why: a multiprocessor multiplies and adds 128 pairs of float32 a cycle, and a warp needs each number in the registers
of many lanes. That limits products of many FLOP, such as 784-256-10's of 50 million.

Change: gemm. The same tiles, cut the same ways. The four numbers that a lane loads are rounded to tf32 and form its
fragment directly. Weights, gradients and sums stay float32. cuBLASLt may use TF32 as well, where it is faster.

Expect: nothing for softmax regression, 7.8 us, where nodes and latency are left. 784-256-10, batch 128: 2.2 us for
the large products in place of 3.5, 13 us. 784-1024-10: 20 us. 784-128x3-10, batch 32: 18 us. 784-784x4-10, batch 64:
40 us. 784-4096x3-10, batch 32: limited by memory, as before: 590 MB, 150 us.

Predict: on H200: 784-10, batch 128: 1 x of fused-bias; 784-256-10, batch 128: 13 us; 784-1024-10, batch 128: 20 us;
784-128x3-10, batch 32: 18 us; 784-784x4-10, batch 64: 40 us; 784-4096x3-10, batch 32: 150 us.

Found: softmax regression gains little, as predicted, since nodes and latency are its time. Wider networks gain
up to half as much again, but stay far above the estimates. In 784-4096x3-10 the library's products win, and by a trial
an update takes longer than both other products of its layer; the other misses are not explained.
"""

from __future__ import annotations

from typing import ClassVar

from stages.engine.recipe import Precision
from stages.tiles import fused_bias
from stages.tiles.tile_gemm import TileGemm


class Tf32Gemm(TileGemm):
    """Our tiles or cuBLASLt, in TF32."""

    precision: ClassVar[Precision] = "tf32"
    needs: ClassVar[tuple[str, ...]] = ("cuda", "cublas", "sm_80")
    kernel: ClassVar[tuple[str, str]] = ("tiles/tile_tf32.cu", "tile_product_tf32")


STAGE = fused_bias.STAGE.climb("tf32", "TF32 tensor cores", words="tf32 tensor cores", gemm=Tf32Gemm)
