"""Streamed ring: the copy engine moves whole tiles of weights, and no warp waits for all others.

Why: last-layer's kernels reach half of memory's rate, though each weight is read twice and written once. All warps of
a block copy 16 bytes a lane, meet once a piece of 256 bytes a row, and then multiply it together: neither copies nor
products go on without a break. Each pass begins at the end of the layer that L2 evicted first.

Change: gemm. A hidden layer's weights lie in memory tile after tile, 16 KB each. One warp asks the copy engine for the
next tiles, another for the updated ones to be stored, and teams of eight multiply, each warp as soon as its tile is
there. Backward one team takes the gradient of the inputs, the other the update. Blocks walk along circles, so that each
pass begins with the tiles where the one before ended. Parameters change their order when they are loaded and read.

Expect: a copy of the same 440 MB takes 148 us on an H100. A trial of rings with all traffic, but without products,
took 133 us for two layers of 4,096; with the first layer, the last one, and 2 us a kernel: 170 us a step. By the ratio
of their memories an H200 would take 128. Batches of at most 32; inputs a multiple of 16, hidden layers of 64.

Predict: on H100: 784-4096x3-10, batch 32: 160 to 180 us.

Found: in a trial on an H100, 213 to 215 us where last-layer takes 217: a quarter more than expected. A layer of 4,096
takes 57 to 62 us backward, where ring-bf16 moves the same bytes in 42 to 52: three products a weight are the limit
there, not memory. For the rest see docs/notebook/streamed.md.
"""

from __future__ import annotations

from typing import ClassVar

from stages.streamed import r2_last_layer
from stages.streamed.r1_streamed import ExactStreamed
from stages.streamed.ring_gemm import RingGemm


class ExactRing(RingGemm, ExactStreamed):
    """Products through a ring with two tf32 parts a factor."""

    ring: ClassVar[tuple[str, str, str]] = ("streamed/ring_split.cu", "ring_forward_split", "ring_back_split")
    forward_teams: ClassVar[int] = 1
    below: ClassVar[str] = "last-layer"


STAGE = r2_last_layer.STAGE.climb(
    "streamed-ring", "Ring of weight tiles", words="the copy engine moves tiles of weights", gemm=ExactRing
)
