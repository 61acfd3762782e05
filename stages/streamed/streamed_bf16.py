"""Streamed bfloat16: as in streamed, wide layers' weights are copied ahead; products in bfloat16.

Why: as for streamed. With one product in place of three, the copies take most of the time.

Change: gemm. As in streamed, on top of bf16.

Expect: for 784-4096x3-10, batch 32, 36 us for a layer's backward pass instead of 70, and 20 forward instead of 23:
152 us per step, where three earlier versions took 210, 188 and 180. After a fourth took 167: 150, by the weights that
L2 keeps.

Predict: on H200: 784-4096x3-10, batch 32: 150 us.

Found: as predicted, 784-4096x3-10 is half as fast again, by a backward pass in which one kernel takes the place of two;
forward was nearly as fast before. Memory that is read and written at once seems to be the limit, below the rate of a
plain copy (docs/notebook/streamed.md). Narrower networks hardly change.
"""

from __future__ import annotations

from typing import ClassVar

from stages.streamed.streamed_gemm import StreamedGemm
from stages.tiles import bf16
from stages.tiles.bf16 import BFloat16Gemm


class BFloat16Streamed(StreamedGemm, BFloat16Gemm):
    """Streamed products in bfloat16."""

    streamed: ClassVar[tuple[str, str, str]] = (
        "streamed/streamed_bf16.cu",
        "streamed_forward_bf16",
        "streamed_back_bf16",
    )


STAGE = bf16.STAGE.climb(
    "streamed-bf16",
    "Streamed weights, bfloat16",
    words="weights read once for gradient and update",
    gemm=BFloat16Streamed,
)
