"""Persistent grid, bfloat16: factors are rounded to 8 bits instead of split in three parts.

Why: a float32 is the sum of three bfloat16, so a product takes six tensor core products, and a layer's inputs and
gradients go through shared memory three times.

Change: launch. The same kernel, compiled to use the first bfloat16 of each number alone; its phases also pass that on
through memory. Weights and sums stay float32.

Expect: 9 us a step for 784-1024-10 with batches of 128 instead of 11.5, 30 us for 784-784x4-10 with batches of 64
instead of 38. Products take a fourth of the cycles; barriers, loads from L2 and the rows of the small layers stay as
they are.

Predict: on H200: 784-1024-10, batch 128: 9 us; 784-784x4-10, batch 64: 30 us.

Found: recorded on an H200: {784-1024-10} us instead of {persistent-grid 784-1024-10} for 784-1024-10, {784-784x4-10}
instead of {persistent-grid 784-784x4-10} for 784-784x4-10, {784-256-10} instead of {persistent-grid 784-256-10} for
784-256-10; 9.3 and 39.0 for the first two while phases still passed on float32. 784-784x4-10 misses its estimate: the
work beside the products takes longer than expected.
"""

from __future__ import annotations

from typing import ClassVar

from common.cost import Arithmetic
from stages.engine.recipe import Precision
from stages.persistent import r1_persistent_grid
from stages.persistent.r1_persistent_grid import GridEpoch


class BFloat16GridEpoch(GridEpoch):
    """The persistent grid with one bfloat16 a factor."""

    precision: ClassVar[Precision] = "bfloat16"
    needs: ClassVar[tuple[str, ...]] = ("cuda", "sm_80")
    parts: ClassVar[int] = 1
    arithmetic: ClassVar[tuple[Arithmetic, ...]] = (Arithmetic("bfloat16"),)


STAGE = r1_persistent_grid.STAGE.climb(
    "grid-bf16", "Persistent grid, bfloat16", words="the same in bfloat16", launch=BFloat16GridEpoch
)
