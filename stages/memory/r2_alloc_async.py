"""cudaMallocAsync: memory is taken and given back in the order of the stream, without waiting for the device.

Why: cudaFree has to be sure that no kernel uses the memory any more, and waits for all of them. The stream knows the
order: what is freed after a kernel may be given to the next one, though none of them has run yet.

Change: memory. The same calls at the same places, cudaMallocAsync and cudaFreeAsync on the stream of the kernels. They
take from a pool of the driver's, which gives back to the device what is unused at a synchronisation, as it does
unless told otherwise.

Expect: no wait, so that launches and kernels overlap again; four calls of each at about 1 us, and so 8 to 10 us a step
more than the ladder's rung without any: 55 us for softmax regression. cudaMalloc itself is called no more.
"""

from __future__ import annotations

from stages.memory import r1_alloc_cudamalloc
from stages.memory.step_memory import PerStep


class StreamOrdered(PerStep):
    """cudaMallocAsync and cudaFreeAsync."""

    allocator = "cudaMallocAsync"


STAGE = r1_alloc_cudamalloc.STAGE.climb("alloc-async", "Allocate in stream order in every step", memory=StreamOrdered)
