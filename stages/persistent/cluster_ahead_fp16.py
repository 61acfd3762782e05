"""Cluster ahead, float16: each factor is one float16 instead of the sum of two.

Why: on the critical path, two halves a factor take three products for one, and twice the bytes of every message.

Change: launch. The same kernel, compiled for one half a factor. Partial logits travel as float16. Weights and sums stay
float32.

Expect: 2.0 to 2.2 us per step for 784-256-10 with batches of 128: a miniature without updates, biases and totals took
1.77 to 1.89 us on an H100, and these should add 0.2 to 0.4.

Predict: on H200: 784-256-10, batch 128: 2.1 us.

Found: it is a quarter faster than float32's class, and slower than predicted. The prediction came from a miniature
whose first layer computed for too short a time; with a longer one it takes about as long as the rung. What is left is
mostly exchange: with hardly a product left, most of a step remains (docs/notebook/persistent-cluster-hidden.md).
"""

from __future__ import annotations

from typing import ClassVar

from common.cost import Arithmetic
from stages.engine.recipe import Precision
from stages.persistent import ahead_plan, cluster_ahead
from stages.persistent.cluster_ahead import AheadEpoch


class Float16Ahead(AheadEpoch):
    """An epoch by five clusters in float16."""

    precision: ClassVar[Precision] = "float16"
    halves: ClassVar[int] = ahead_plan.ROUNDED
    arithmetic: ClassVar[tuple[Arithmetic, ...]] = (Arithmetic("float16"),)


STAGE = cluster_ahead.STAGE.climb(
    "cluster-ahead-fp16",
    "Cluster ahead, float16",
    words="the same in float16",
    closest="cluster-fp16",
    launch=Float16Ahead,
)
