"""Persistent grid, bfloat16: factors are rounded to 8 bits instead of split in three parts.

Why: a float32 is the sum of three bfloat16, so a product takes six tensor core products, and a layer's inputs and
gradients go through shared memory three times.

Change: launch. The same kernel, compiled to use the first bfloat16 of each number alone; its phases also pass that on
through memory. Weights and sums stay float32.

Expect: 9 us per step for 784-1024-10 with batches of 128 instead of 11.5, 30 us for 784-784x4-10 with batches of 64
instead of 38. Products take a fourth of the cycles; barriers, loads from L2 and the rows of the small layers stay as
they are.

Predict: on H200: 784-1024-10, batch 128: 9 us; 784-784x4-10, batch 64: 30 us.

Found: only products shrink, so it gains where they are much of a step: 784-1024-10 meets its prediction, and 784-10 and
784-128x3-10 gain a tenth. 784-784x4-10 misses by a fifth, since barriers, loads and the wait for the busiest blocks
stay. Like its parent, it loses where weights do not fit on the chip, and in batches of thousands.
"""

from __future__ import annotations

from typing import ClassVar

from common.cost import Arithmetic
from stages.engine.recipe import Precision
from stages.persistent import persistent_grid
from stages.persistent.persistent_grid import GridEpoch


class BFloat16GridEpoch(GridEpoch):
    """The persistent grid with one bfloat16 a factor."""

    precision: ClassVar[Precision] = "bfloat16"
    needs: ClassVar[tuple[str, ...]] = ("cuda", "sm_80")
    parts: ClassVar[int] = 1
    arithmetic: ClassVar[tuple[Arithmetic, ...]] = (Arithmetic("bfloat16"),)


STAGE = persistent_grid.STAGE.climb(
    "grid-bf16", "Persistent grid, bfloat16", words="the same in bfloat16", launch=BFloat16GridEpoch
)
