"""A persistent grid in bfloat16: the products' factors are rounded to eight bits.

Why: a float32 is three bfloat16, and a product of two of them six products on tensor cores; a layer's inputs and
gradients go through shared memory three times for it.

Change: launch. The same kernel, compiled to take the first bfloat16 of a number alone, which is also what its phases
leave in memory for each other. Weights stay float32, and sums.

Expect: 9 us a step for 784-1024-10 with batches of 128 instead of 11.5, 30 us for 784-784x4-10 with batches of 64
instead of 38: products take a fourth of the cycles, while barriers, loads from L2 and the rows through the tail take
what they took.

Found: 35.1 us instead of 48.4, and 8.8 instead of 12.4 for 784-1024-10; 39.0 and 9.3 as long as its phases left float32
for each other. What the products do not take was more than it was thought to be.
"""

from __future__ import annotations

from typing import ClassVar

from stages.engine.recipe import Precision
from stages.persistent import r1_persistent_grid
from stages.persistent.r1_persistent_grid import GridEpoch


class BFloat16GridEpoch(GridEpoch):
    """In bfloat16."""

    precision: ClassVar[Precision] = "bfloat16"
    needs: ClassVar[tuple[str, ...]] = ("cuda", "sm_80")
    rung: ClassVar[str] = "grid-bf16"
    parts: ClassVar[int] = 1


STAGE = r1_persistent_grid.STAGE.climb("grid-bf16", "Persistent grid, bfloat16", launch=BFloat16GridEpoch)
