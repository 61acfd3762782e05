"""Grid messages, float16: each factor is one float16 instead of the sum of two.

Why: two halves a factor take three products for one, and twice the bytes of every message.

Change: launch. The same kernel, compiled for one half a factor; parts of sums travel as float16. Weights and sums stay
float32. The tag takes the lowest of eleven bits of a quarter of all numbers sent.

Expect: 15.5 us per step for 784-784x4-10 with batches of 64, where its parent should take 22.5. Forms before took
21.9 and 30.2 in trials.

Predict: on H200: 784-784x4-10, batch 64: 15.5 us.

Found: it misses by a seventh: products and updates take about half of the float32 class's time, but sums among blocks
only a quarter less, and they are now half of a step. A tag in the lowest of eleven bits has to be rounded in. Cut off,
it made gradients lean towards zero, and a check failed (docs/notebook/persistent-grid.md).
"""

from __future__ import annotations

from typing import ClassVar

from common.cost import Arithmetic
from stages.engine.recipe import Precision
from stages.persistent import grid_messages, messages_plan
from stages.persistent.grid_messages import MessagesEpoch


class Float16Messages(MessagesEpoch):
    """An epoch of grid-messages in float16."""

    precision: ClassVar[Precision] = "float16"
    halves: ClassVar[int] = messages_plan.ROUNDED
    arithmetic: ClassVar[tuple[Arithmetic, ...]] = (Arithmetic("float16"),)


STAGE = grid_messages.STAGE.climb(
    "grid-messages-fp16",
    "Grid messages, float16",
    words="the same in float16",
    closest="grid-bf16",
    launch=Float16Messages,
)
