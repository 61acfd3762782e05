"""Streamed: on the way back the weights of a wide layer are read and written once, and copied ahead.

Why: for three hidden layers of 4,096 a step is bound by memory, 147 MB of weights, of which no cache holds much. On the
way back they are read for the gradient of the layer's inputs, and at once read again, to be updated and written: 192 MB
for a layer where 128 would do, and the warps ask for their next numbers when they begin to multiply the last.

Change: gemm. The product of a gradient with weights is held back until the next call, which asks for the update of the
same weights: both become one kernel, which keeps its weights in registers from the one product to the other. There,
forward and in the first layer's update, asynchronous copies bring what comes next, 256 bytes of a row at once. L2 keeps
the same share of the weights from pass to pass. The rung below's kernels stay where they measure faster, or where a
size does not fit: more than 32 rows, say.

Expect: for 784-4096x3-10, batch 32, 50 us for a layer's way back where two kernels take 97, and 28 forward instead of
33: in all 205 us a step, where three earlier versions took 285, 234 and 250 (docs/notes.md). After a fourth one took
218, 200 by what L2 keeps, and by a first layer's update that leaves out a gradient nobody reads.

Found: 201 us on an H200, where the rung below takes 304. Before L2 kept anything a layer's way back took 53 us; forward
the kernel was as fast as the rung below's, 32 us. Twice as many warps made a step 3 % faster (docs/notes.md).
"""

from __future__ import annotations

from typing import ClassVar

from stages.streamed.streamed_gemm import StreamedGemm
from stages.tiles import r3_exact_u8
from stages.tiles.r3_exact_u8 import ExactGemm


class ExactStreamed(StreamedGemm, ExactGemm):
    """In two tf32 parts of each factor."""

    streamed: ClassVar[tuple[str, str, str]] = (
        "streamed/streamed_split.cu",
        "streamed_forward_split",
        "streamed_back_split",
    )


STAGE = r3_exact_u8.STAGE.climb("streamed", "Streamed weights", gemm=ExactStreamed)
