"""Large batch, early kernels: three kernels of our own a step, each of which starts before the one in front ends.

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

from stages.large_batch import r1_large_batch
from stages.large_batch.early_epoch import EarlyEpoch

STAGE = r1_large_batch.STAGE.climb(
    "large-batch-early",
    "Large batch, early kernels",
    words="three own kernels a step, all start early",
    launch=EarlyEpoch,
)
