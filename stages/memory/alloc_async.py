"""cudaMallocAsync: memory is allocated and freed in stream order, without waiting for the device.

Why: cudaFree must be sure that no kernel uses the memory any more, and waits for all of them. A stream knows the
order: memory freed after one kernel can serve the next one before either has run.

Change: memory. The same calls at the same places, cudaMallocAsync and cudaFreeAsync on the kernels' stream. They use
a pool of the driver, which by default returns unused memory to the device at every synchronisation.

Expect: no wait, so launches and kernels overlap again; four calls of each at about 1 us, so 8 to 10 us per step more
than without allocation: 55 us for softmax regression. cudaMalloc itself is not called any more.

Predict: on H200: 784-10, batch 128: 55 us.

Found: nothing waits any more, and a large tensor costs no more than a small one. From 512 units on that makes a step
two to more than four times as fast as with cudaMalloc (study `allocators`). The calls still take the host's time in
every step, but no difference from `sparse-metrics` exceeds its noise.
"""

from __future__ import annotations

from stages.memory import alloc_cudamalloc
from stages.memory.per_step import PerStep


class StreamOrdered(PerStep):
    """Memory by cudaMallocAsync and cudaFreeAsync."""

    allocator = "cudaMallocAsync"


STAGE = alloc_cudamalloc.STAGE.climb("alloc-async", "Allocate in stream order in every step", memory=StreamOrdered)
