"""Skinny GEMM: a hand-written kernel multiplies matrices too narrow for the library's tiles.

Why: a GPU has 132 multiprocessors, and a library cuts a product into tiles of 64 or 128 outputs a side for them. A
product of 10 columns or 32 rows is one or two tiles. For softmax regression cuBLASLt takes 5 to 6 us for each of its
two products, one kernel that splits k and one that adds up the parts, where a node of a graph takes 0.9 to 1.4 us.

Change: gemm. Tiles are small, and k is split over the warps of a block and the blocks of a cluster. They add up their
parts in a fixed order, with bias, ReLU, its mask or the weight update in the same kernel. Preparation times every way
to cut a product, and the library; the fastest is kept on disk.

Expect: about 2 us for each product of softmax regression, 9 us per step instead of 16. 784-256-10, batch 128: 3.5 us
for the two large products, of 50 MFLOP each, 2 for the others, 18 us instead of 34. 784-1024-10: those are four times
as large, a size at which the library is good: little gain. 784-128x3-10, batch 32: eleven products of 1.6 us and five
other kernels, 25 us. 784-784x4-10, batch 64: 70 MFLOP a product, 80 us. 784-4096x3-10, batch 32: nothing, since
reading the weights is the bottleneck.

Predict: on H200: 784-10, batch 128: 9 us; 784-256-10, batch 128: 18 us; 784-1024-10, batch 128: 1 x of fused-epilogue;
784-128x3-10, batch 32: 25 us; 784-784x4-10, batch 64: 80 us; 784-4096x3-10, batch 32: 1 x of fused-epilogue.

Found: where all products are narrow, a step is about 1.6 times as fast. Estimates of networks with narrow hidden layers
are missed, since the smallest product takes half as long again as was assumed. Wider layers gain less, though more than
predicted for 784-1024-10 and 784-4096x3-10, and their updates stay with the library (docs/notebook/tiles.md).
"""

from __future__ import annotations

from stages.fusion import fused_epilogue
from stages.tiles.tile_gemm import TileGemm


class SkinnyGemm(TileGemm):
    """Our tiles or cuBLASLt, in float32."""


STAGE = fused_epilogue.STAGE.climb(
    "skinny-gemm", "Skinny GEMM", words="hand-written products for few columns", gemm=SkinnyGemm
)
