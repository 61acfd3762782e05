"""Ring, bfloat16: as in streamed-ring, the copy engine moves tiles of weights; products in bfloat16.

Why: as for streamed-ring. With one product in place of three, memory should be the only limit.

Change: gemm. As in streamed-ring, on top of last-layer-bf16, with two teams of eight warps a block.

Expect: the same bytes as streamed-ring, so no more than 5% faster: 165 us per step on an H100.

Predict: on H100: 784-4096x3-10, batch 32: 155 to 172 us.

Found: it is no faster than its parent in 784-4096x3-10, beyond noise. Some microseconds of each kernel are neither
copies nor products; inferred, they are its start, its first tile and the sums over blocks. 784-128x3-10 takes almost a
third longer, since its layers are a few tiles for 132 multiprocessors.
"""

from __future__ import annotations

from typing import ClassVar

from common.cuda.compile import Macros
from stages.streamed import last_layer_bf16
from stages.streamed.ring_gemm import IN_BFLOAT16, RingGemm
from stages.streamed.streamed_bf16 import BFloat16Streamed


class BFloat16Ring(RingGemm, BFloat16Streamed):
    """Products through a ring in bfloat16."""

    macros: ClassVar[Macros] = IN_BFLOAT16


STAGE = last_layer_bf16.STAGE.climb(
    "ring-bf16", "Ring of weight tiles, bfloat16", words="the copy engine moves tiles of weights", gemm=BFloat16Ring
)
