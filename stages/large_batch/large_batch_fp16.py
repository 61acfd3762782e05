"""Large batch, float16: each number is one float16 instead of the sum of two.

Why: two halves double the bytes and the products of large-batch. At 8,192 images both are the bottleneck.

Change: launch. The same kernels with one half a number, and the hidden sums as float16.

Expect: 784-256-10 in batches of 8,192: 8 us for the first product, 5.5 for the head, 9 for the weight gradient, 2.5 for
the update, 25 us instead of 39. 16 us at 2,048 and 12 at 512, where latency is the bottleneck. 784-128x3-10 at 8,192 on
an H100: 5 us for the product, 10 to 12 for the layers, 6 and 4 for the weight gradients and 3, so 30 us.

Predict: on H200: 784-256-10, batch 8192: 25 us; 784-256-10, batch 2048: 16 us; 784-256-10, batch 512: 12 us.

Found: one half instead of two gains what bytes and arithmetic cost: half as fast again at 8,192 images, about an eighth
at 512 (study `batch-size`). There latency binds, and much of a step is the time between kernels. Estimates are met up
to 2,048, and missed by an eighth at 8,192.
"""

from __future__ import annotations

from typing import ClassVar

from common.cost import Arithmetic
from stages.engine.recipe import Precision
from stages.large_batch import large_batch
from stages.large_batch.large_batch import HalvesEpoch
from stages.large_batch.layout import ROUNDED


class Float16Epoch(HalvesEpoch):
    """An epoch in float16."""

    precision: ClassVar[Precision | None] = "float16"
    halves: ClassVar[int] = ROUNDED
    arithmetic: ClassVar[tuple[Arithmetic, ...]] = (Arithmetic("float16"),)


STAGE = large_batch.STAGE.climb(
    "large-batch-fp16", "Large batch, float16", words="the same in float16", launch=Float16Epoch
)
