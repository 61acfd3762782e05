"""Skinny GEMM: our own kernel for products that leave a library's idle, wherever it measures faster.

Why: a GPU has 132 multiprocessors, and a library cuts a product into tiles of 64 or 128 outputs a side for them. Those
of 10 columns or 32 rows are one or two tiles: with softmax regression cuBLASLt takes 5 to 6 us for each of its two, one
kernel that splits k and one more that adds up the parts, where a node of a graph takes 0.9 to 1.4 us.

Change: gemm. Small tiles, and k split over the warps of a block and the blocks of a cluster, which add up what they
have in a fixed order before they leave, with bias, ReLU, its mask or the weight update on the way: one kernel for each
product. Every way to cut a product, and the library, are timed while preparing; the fastest is kept on disk.

Expect: about 2 us for each of the products of softmax regression, 9 us a step instead of 16. 784-256-10, batch 128:
3.5 us for the two large products, which are 50 MFLOP each, 2 for the others, 18 us instead of 34. 784-1024-10: those
are four times as large, and the library is good at that size: little less than it took. 784-128x3-10, batch 32: eleven
products of 1.6 us and five other kernels, 25 us. 784-784x4-10, batch 64: 70 MFLOP a product, 80 us. 784-4096x3-10,
batch 32: nothing, since reading the weights is the bound.

Found: in a trial, not among the recorded runs, 10.8 us for softmax regression, where the rung below took 15.7 in the
same process; 28.0 and 37.4 for 784-256-10, 38.3 and 47.9 for 784-1024-10, 40.2 and 64.7 for 784-128x3-10, 97 and 118
for 784-784x4-10, 335 and 365 for 784-4096x3-10. Less was won with small models than expected, since the smallest
product takes 2.3 us and not 1.6, and more with wide ones; updates of wide layers stay with the library (docs/notes.md).
"""

from __future__ import annotations

from stages.fusion import r3_fused_epilogue
from stages.tiles.tile_gemm import TileGemm


class SkinnyGemm(TileGemm):
    """Tiles or cuBLASLt, in float32."""


STAGE = r3_fused_epilogue.STAGE.climb("skinny-gemm", "Skinny GEMM", gemm=SkinnyGemm)
