"""Large batch, float16: each number is one float16 instead of the sum of two.

Why: two halves double the bytes and the products of large-batch. At 8,192 images both are the bottleneck.

Change: launch. The same kernels with one half a number, and the hidden sums as float16.

Expect: 784-256-10 in batches of 8,192: 8 us for the first product, 5.5 for the head, 9 for the weight gradient, 2.5 for
the update, 25 us instead of 39. 16 us at 2,048 and 12 at 512, where latency is the bottleneck. 784-128x3-10 at 8,192 on
an H100: 5 us for the product, 10 to 12 for the layers, 6 and 4 for the weight gradients and 3, so 30 us.

Predict: on H200: 784-256-10, batch 8192: 25 us; 784-256-10, batch 2048: 16 us; 784-256-10, batch 512: 12 us.

Found: in a trial on an H200, 28.2 us at 8,192, 17.0 at 2,048 and 13.0 at 512, which is 13, 7 and 9 % above the
estimates. At 512 the four kernels take 3.6, 3.3, 3.4 and 2.5 us, all of the step, and a step of 128 images still took
11.9. So latency bounds them, not arithmetic or bytes. Of four nodes with a block on every multiprocessor 5.6 us are the
time between kernels; large-batch-early-fp16 has less. Verified runs of one process took 28.6, 16.0 and 12.7 us.
784-128x3-10 at 8,192 took 34.8 us in such a run, and 35.4 in a trial on an H100, 18 % above the estimate, where
`streamed-bf16` took 152. At 256 images a trial took 16.2 us (docs/notebook/large-batch.md).
"""

from __future__ import annotations

from typing import ClassVar

from common.cost import Arithmetic
from stages.engine.recipe import Precision
from stages.large_batch import r1_large_batch
from stages.large_batch.halves_epoch import HalvesEpoch
from stages.large_batch.layout import ROUNDED


class Float16Epoch(HalvesEpoch):
    """An epoch in float16."""

    precision: ClassVar[Precision | None] = "float16"
    halves: ClassVar[int] = ROUNDED
    arithmetic: ClassVar[tuple[Arithmetic, ...]] = (Arithmetic("float16"),)


STAGE = r1_large_batch.STAGE.climb(
    "large-batch-fp16", "Large batch, float16", words="the same in float16", launch=Float16Epoch
)
