"""Ring of planes, bfloat16: weights are a bfloat16 and a remainder; forward reads the first alone.

Why: ring-bf16 reads 4 bytes of a weight forward, rounds them to bfloat16, and never uses the other two.

Change: gemm. A float32's bits are split in two numbers of 16 bits: (bits + 0x8000) >> 16, which is a bfloat16, and the
low 16 bits as a signed remainder. Together they are the float32, bit for bit. A tile of 16 KB has both planes, one
after the other. Forward copies the first one alone; backward copies, joins, updates and splits both. So a step moves
10 bytes a parameter instead of 12.

Expect: in a trial of rings without products two layers of 4,096 took 116 us instead of 133 on an H100: 15 to 20 us less
a step than ring-bf16.

Predict: on H100: 784-4096x3-10, batch 32: 14 to 21 us less than ring-bf16.

Found: as predicted: forward reads two bytes of a weight instead of four and takes about two thirds of the time, and
backward takes as long as before. So a step has a sixth fewer bytes and takes about a tenth less time. Where memory does
not bind, as in 784-128x3-10, nothing is gained beyond noise.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from common.cuda.compile import Macros
from common.problem import Params
from stages.streamed import ring_bf16
from stages.streamed.ring_bf16 import BFloat16Ring
from stages.streamed.ring_gemm import IN_BFLOAT16, IN_PLANES
from stages.streamed.weight_panels import from_planes, to_planes


class PlanesRing(BFloat16Ring):
    """Products through a ring in bfloat16, with weights in two planes."""

    has_planes: ClassVar[bool] = True
    macros: ClassVar[Macros] = IN_BFLOAT16 + IN_PLANES

    @classmethod
    def packed(cls, params: Params) -> Params:
        """Parameters with the weights of hidden layers in planes."""
        return replace(params, weights=(*map(to_planes, params.weights[:-1]), params.weights[-1]))

    @classmethod
    def unpacked(cls, params: Params) -> Params:
        """The inverse of `packed`."""
        return replace(params, weights=(*map(from_planes, params.weights[:-1]), params.weights[-1]))


STAGE = ring_bf16.STAGE.climb(
    "ring-planes", "Ring of planes of weights", words="the forward pass reads half of each weight", gemm=PlanesRing
)
