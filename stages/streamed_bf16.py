"""Streamed, in bfloat16: on the way back the weights of a wide layer are read and written once.

Why: as for streamed; and with one product in place of three, the copies are what takes the time.

Change: gemm. As in streamed, on top of bf16.

Expect: for 784-4096x3-10, batch 32, 40 us for a layer's way back instead of 71, and with 8 us less forward 168 us a
step instead of 240. For 784-784x4-10, batch 64, 60 us instead of 74.

Found: a third of it. In a trial on an H200 the way back took 64 us, two kernels 77; a step takes 210 us, and 67 for
784-784x4-10 (docs/notes.md).
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
