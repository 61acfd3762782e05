"""Large batch, early kernels, float16: each number is one float16 instead of the sum of two.

Why: two halves double what a kernel of large-batch-early brings in after its wait.

Change: launch. The same kernels with one half a number.

Expect: on an H100 784-256-10 at 512 images 8 to 9 us: the product 2.2, the head 2.7, the update 3. In 784-128x3-10 at
256 images 11 us, where the layers take 5 and `grid-bf16` 14.9 in all.

Predict: on H100: 784-256-10, batch 512: 8 to 9 us; 784-128x3-10, batch 256: 10 to 12 us.

Found: 784-256-10 misses its estimate at 512 images by about a fifth: product, head and update each take their share of
a step, and part of each is its start. 784-128x3-10 meets its estimate at 256, ahead of `grid-bf16`. At 128 images
784-256-10 is faster by rungs with one launch an epoch (docs/notebook/large-batch.md).
"""

from __future__ import annotations

from typing import ClassVar

from common.cost import Arithmetic
from stages.engine.recipe import Precision
from stages.large_batch import large_batch_early
from stages.large_batch.large_batch_early import EarlyEpoch
from stages.large_batch.layout import ROUNDED


class EarlyFloat16Epoch(EarlyEpoch):
    """An epoch in float16."""

    precision: ClassVar[Precision | None] = "float16"
    halves: ClassVar[int] = ROUNDED
    arithmetic: ClassVar[tuple[Arithmetic, ...]] = (Arithmetic("float16"),)


STAGE = large_batch_early.STAGE.climb(
    "large-batch-early-fp16", "Large batch, early, float16", words="the same in float16", launch=EarlyFloat16Epoch
)
