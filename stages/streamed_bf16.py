"""Streamed, in bfloat16: the weights of a wide layer are copied ahead, and on the way back read and written once.

Why: as for streamed; and with one product in place of three, the copies are what takes the time.

Change: gemm. As in streamed, on top of bf16.

Expect: for 784-4096x3-10, batch 32, 38 us for a layer's way back instead of 71, and 20 forward instead of 23: 160 us a
step, where two earlier versions took 210 and 188.

Found: less than that: 180 us on an H200, where the rung below takes 235. A layer's way back takes 47 us, 50 in a trial
of the version before; forward the rung below's kernels, 23 and 28 us, stay the fastest (docs/notes.md).
"""

from __future__ import annotations

from typing import ClassVar

from stages import bf16
from stages.bf16 import BFloat16Gemm
from stages.streamed_gemm import StreamedGemm


class BFloat16Streamed(StreamedGemm, BFloat16Gemm):
    """In bfloat16."""

    streamed: ClassVar[tuple[str, str, str]] = ("streamed_bf16.cu", "streamed_forward_bf16", "streamed_back_bf16")


STAGE = bf16.STAGE.climb("streamed-bf16", "Streamed weights, bfloat16", gemm=BFloat16Streamed)
