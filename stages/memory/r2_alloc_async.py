"""cudaMallocAsync: memory is allocated and freed in stream order, without waiting for the device.

Why: cudaFree must be sure that no kernel uses the memory any more, and waits for all of them. A stream knows the
order: memory freed after one kernel can serve the next one before either has run.

Change: memory. The same calls at the same places, cudaMallocAsync and cudaFreeAsync on the kernels' stream. They use
a pool of the driver, which by default returns unused memory to the device at every synchronisation.

Expect: no wait, so launches and kernels overlap again; four calls of each at about 1 us, so 8 to 10 us a step more
than without allocation: 55 us for softmax regression. cudaMalloc itself is not called any more.

Predict: on H200: 784-10, batch 128: 55 us.

Found: recorded on an H200 for 784-H-10, batch 128, with H = 128, 512, 2,048 and 8,192: 111, 123, 175 and 177 us,
against 132, 273, 882 and 539 with cudaMalloc. Against `sparse-metrics` that is -1, 17, 65 and 0 us more. Why 2,048
costs that much is not explained; its runs range from 172 to 395 us.
"""

from __future__ import annotations

from stages.memory import r1_alloc_cudamalloc
from stages.memory.per_step import PerStep


class StreamOrdered(PerStep):
    """Memory by cudaMallocAsync and cudaFreeAsync."""

    allocator = "cudaMallocAsync"


STAGE = r1_alloc_cudamalloc.STAGE.climb("alloc-async", "Allocate in stream order in every step", memory=StreamOrdered)
