"""Large batch, early kernels: three hand-written kernels per step, each of which starts before the one in front ends.

Why: at 512 images large-batch takes 15.8 us, and 14.0 in float16, though a quarter of the images makes a step only a us
or two shorter. Each of its four kernels brings its factors in after the one before has ended: a start of 1.4 us, a
chain of loads, products and a store. Half of what they bring in has been there for long: images, or weights of the step
before.

Change: launch. `images_product`, the head's kernel and `update_by_products` are programmatic dependents of each other.
Each starts early and brings in all that the kernel in front does not write, and only then waits: images before the
weights are updated, weights before the sums are there, images once more before their gradients are there. Matrices lie
in memory in chunks of 16 by 16 numbers, so that the copy engine brings them in as runs. The weight gradient and the
update are one kernel, since every block takes all images. That bounds a batch: they must fit in shared memory.

Expect: on an H100 784-256-10 at 512 images 11 to 12 us instead of 15.8, and 784-128x3-10 at 256 images 15 instead of
20.3. At 512 each kernel should take two or three us, its start half a us.

Predict: on H100: 784-256-10, batch 512: 11 to 12 us; 784-128x3-10, batch 256: 14 to 16 us.

Found: a start takes little more than half of its time, and reading images none of its own, as expected. The rest is
loads, products and stores, of which none dominates, so that 784-256-10 misses its estimate at 512 images and gains
little there; 784-128x3-10 meets its own at 256. At 2,048 the images no longer fit in shared memory
(docs/notebook/large-batch.md).
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from stages.engine.parts import float32, int32
from stages.engine.workspace import Array, Setup
from stages.large_batch import large_batch
from stages.large_batch.large_batch import HalvesEpoch
from stages.large_batch.layout import EDGE, UPDATE_THREADS, EarlyLayout, Layout, Macros


class EarlyEpoch(HalvesEpoch):
    """An epoch on float16 halves in three kernels of our own a step, launched early.

    Each kernel starts before the one in front ends, and reads early what that one does not write: images, or what
    earlier kernels wrote. It may, since every kernel lets the next one start only after its own wait: when a kernel
    runs, all but the one in front of it are complete. MisfitError for a batch whose images do not fit in a block's
    shared memory.
    """

    needs: ClassVar[tuple[str, ...]] = ("cuda", "sm_90")
    are_dependents: ClassVar[bool] = True  # less than a node's time lies between kernels
    layout: ClassVar[type[Layout]] = EarlyLayout
    _layout: EarlyLayout

    def kernel(self, setup: Setup, name: str, macros: Macros, shared_bytes: int = 0) -> Any:
        """A kernel of our own, by name, launched early."""
        return super().kernel(setup, name, macros, shared_bytes).dependent()

    def images(self, pixels: Array) -> Array:
        """The images of a batch (B, I) in chunks (B / 16, I / 16, 256), padded."""
        rows = super().images(pixels)
        chunks = self._device.empty((len(rows) // EDGE, rows.shape[1] // EDGE, EDGE * EDGE), np.float16)
        chunks[...] = rows.reshape(-1, 2, 8, chunks.shape[1], 2, 8).transpose(0, 3, 4, 1, 2, 5).reshape(chunks.shape)
        return chunks

    def prepare(self, setup: Setup) -> None:
        """Make the product and the update."""
        layout, parameters = self._layout, setup.tensors.parameters
        self._multiply = self.kernel(setup, "images_product", layout.product_macros, layout.product_bytes)
        self._update = self.kernel(setup, "update_by_products", layout.part_macros(parameters), layout.part_bytes)

    def split_weights(self) -> None:
        """Enqueue the weights' halves."""
        self._enqueue_parts(self._batches[0][0], batch=0, shares=0, with_totals=False)

    def step(self, images: Array, labels: Array, with_totals: bool) -> None:
        """Enqueue a step on a batch."""
        layout = self._layout
        batch = layout.problem.batch_size
        sizes = map(int32, (batch, layout.features, layout.width))
        self._multiply(layout.product_blocks, UPDATE_THREADS, images, self._weights, self._sums, *sizes)
        self._enqueue_head(labels, with_totals)
        self._enqueue_parts(images, batch, layout.head_blocks, with_totals)

    def _enqueue_parts(self, images: Array, batch: int, shares: int, with_totals: bool) -> None:
        layout, tensors = self._layout, self._tensors
        self._update(
            layout.update_blocks,
            UPDATE_THREADS,
            *(images, self._outputs, self._dsums, self._partials, tensors.parameters.flat, self._weights),
            *(self._further_weights, self._by_class, self._by_unit, self._biases, self._block_totals, tensors.totals),
            *map(int32, (batch, layout.features, layout.part_blocks, shares)),
            *map(float32, (layout.gradient_scale, layout.problem.learning_rate)),
            int32(with_totals),
        )


STAGE = large_batch.STAGE.climb(
    "large-batch-early",
    "Large batch, early kernels",
    words="three hand-written kernels, all start early",
    launch=EarlyEpoch,
)
