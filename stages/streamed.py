"""Streamed: on the way back the weights of a wide layer are read and written once, and copied ahead.

Why: for three hidden layers of 4,096 a step is bound by memory, 147 MB of weights, of which no cache holds much. On the
way back they are read for the gradient of the layer's inputs, and at once read again, to be updated and written: 192 MB
for a layer where 128 would do, and the warps ask for their next numbers when they begin to multiply the last.

Change: gemm. The product of a gradient with weights is held back until the next call, which asks for the update of the
same weights: both become one kernel, which keeps its weights in registers from the one product to the other, and asks
for what comes three steps ahead, by asynchronous copies. The rung below's two kernels stay where they measure faster,
or where a size does not fit: more than 64 rows, or outputs that are no multiple of 16.

Expect: for 784-4096x3-10, batch 32, 40 us for a layer's way back where two kernels take 97, and 11 us less forward by
the same copies: in all 190 us a step instead of 325. For 784-784x4-10, batch 64, 75 us instead of 94.

Found: no prediction was met. In a trial on an H200 the way back took 82 us, two kernels 102; a step takes 285 us. For
784-784x4-10 it gained nothing, 90 us. Forward the copies lost everywhere, 50 us against 36, and are gone. The few
warps that have room for their copies seem not to keep memory busy while they multiply (docs/notes.md).
"""

from __future__ import annotations

from typing import ClassVar

from stages import exact_u8
from stages.exact_u8 import ExactGemm
from stages.streamed_gemm import StreamedGemm


class ExactStreamed(StreamedGemm, ExactGemm):
    """In two tf32 parts of each factor."""

    streamed: ClassVar[tuple[str, str, str]] = ("streamed_split.cu", "streamed_forward_split", "streamed_back_split")


STAGE = exact_u8.STAGE.climb("streamed", "Streamed weights", gemm=ExactStreamed)
