"""Streamed, in bfloat16: the weights of a wide layer are copied ahead, and on the way back read and written once.

Why: as for streamed; and with one product in place of three, the copies are what takes the time.

Change: gemm. As in streamed, on top of bf16.

Expect: for 784-4096x3-10, batch 32, 36 us for a layer's way back instead of 70, and 20 forward instead of 23: 152 us a
step, where three earlier versions took 210, 188 and 180. After a fourth one took 167, 150 by what L2 keeps.

Found: 157 us on an H200, where the rung below takes 235, and 165 where its tiles are chosen forward, which measure as
fast by themselves. Before L2 kept anything a layer's way back took 42.5 us, at 3.2 TB/s, with as many warps and copies
under way as one likes: what bounds it, it seems, is memory that is read and written at once, whose rate for a plain
copy is 4.2. Forward was 22.5 us, the rung below's 23.4 (docs/notes.md).
"""

from __future__ import annotations

from typing import ClassVar

from stages.streamed.streamed_gemm import StreamedGemm
from stages.tiles import r3_bf16
from stages.tiles.r3_bf16 import BFloat16Gemm


class BFloat16Streamed(StreamedGemm, BFloat16Gemm):
    """In bfloat16."""

    streamed: ClassVar[tuple[str, str, str]] = (
        "streamed/streamed_bf16.cu",
        "streamed_forward_bf16",
        "streamed_back_bf16",
    )


STAGE = r3_bf16.STAGE.climb("streamed-bf16", "Streamed weights, bfloat16", gemm=BFloat16Streamed)
