"""Divided batch, float16: each factor is one float16 instead of the sum of two.

Why: two halves a factor take two products for one, and twice the bytes of every message.

Change: launch. The same kernel, compiled for one half a factor; weights travel as float16. Weights and sums stay
float32, and so do parts of gradients: in float16 an epoch from zeros erred four times as much as `fp16`.

Expect: 3.2 us per step for 784-10 with batches of 900: messages have half the bytes. Parts in float32 cost 0.2 us more.

Predict: on H200: 784-10, batch 900: 3.2 us.

Found: it misses by a third. What is halved, bytes and products, was the smaller part of a step: the waits for two ways
through L2 are as long as before. Parts in float32 cost the 0.2 us expected, and an epoch from zeros errs
hardly more than that of `fp16`.
"""

from __future__ import annotations

from typing import ClassVar

from common.cost import Arithmetic
from stages.engine.recipe import Precision
from stages.persistent import divided_batch, messages_plan
from stages.persistent.divided_batch import DividedBatch


class Float16Batch(DividedBatch):
    """An epoch of divided-batch in float16."""

    precision: ClassVar[Precision] = "float16"
    halves: ClassVar[int] = messages_plan.ROUNDED
    arithmetic: ClassVar[tuple[Arithmetic, ...]] = (Arithmetic("float16"),)


STAGE = divided_batch.STAGE.climb(
    "divided-batch-fp16",
    "Divided batch, float16",
    words="the same in float16",
    closest="grid-bf16",
    launch=Float16Batch,
)
