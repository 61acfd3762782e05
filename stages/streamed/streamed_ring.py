"""Streamed ring: the copy engine moves whole tiles of weights, and no warp waits for all others.

Why: last-layer's kernels reach half of memory's rate, though each weight is read twice and written once. All warps of
a block copy 16 bytes a lane, meet once a piece of 256 bytes a row, and then multiply it together: neither copies nor
products go on without a break. Each pass begins at the end of the layer that L2 evicted first.

Change: gemm. A hidden layer's weights lie in memory tile after tile, 16 KB each. One warp asks the copy engine for the
next tiles, another for the updated ones to be stored, and teams of eight warps, backward of four (wgmma), multiply,
each warp as soon as its tile is there. Backward two teams take turns at tiles. Blocks walk along circles, so that each
pass begins with the tiles where the one before ended. Parameters change their order when they are loaded and read.

Expect: a copy of the same 440 MB takes 148 us on an H100. A trial of rings with all traffic, but without products,
took 133 us for two layers of 4,096; with the first layer, the last one, and 2 us per kernel: 170 us per step. By the
ratio of their memories an H200 would take 128. Inputs are a multiple of 16, hidden layers of 64. Kernels are compiled
for batches of at most 32, or of at most 64: an H200 then takes 115 to 140 us for 784-2048x4-10 in batches of 64,
where the rungs below take 270.

Predict: on H100: 784-4096x3-10, batch 32: 160 to 180 us.

Found: copies alone would have met the prediction, but exact products do not hide behind them, even by warpgroups and by
teams that take turns at tiles (docs/notebook/streamed.md). The gain is larger on an H200 than on an H100, whose memory
is slower. 784-128x3-10 takes almost a third longer, since few tiles leave most multiprocessors idle.
"""

from __future__ import annotations

from common.cuda.compile import Macros
from stages.streamed import last_layer
from stages.streamed.ring_gemm import BY_WARPGROUPS, RingGemm
from stages.streamed.streamed import ExactStreamed


class ExactRing(RingGemm, ExactStreamed):
    """Products through a ring with two tf32 parts a factor."""

    @classmethod
    def macros_on(cls, capability: int) -> Macros:
        """Backward by warpgroups where `wgmma` is: on sm_90 alone."""
        return cls.macros + (BY_WARPGROUPS if capability == 90 else ())


STAGE = last_layer.STAGE.climb(
    "streamed-ring", "Ring of weight tiles", words="the copy engine moves tiles of weights", gemm=ExactRing
)
