"""cudaMalloc in every step: each tensor of a step is allocated before it and freed after it.

Why: the rungs allocate everything during preparation, which needs a program that knows its tensors beforehand. A
program that writes `float* output; cudaMalloc(&output, ...)` where needed, and frees it when done, knows nothing
beforehand.

Change: memory. cudaMalloc allocates outputs, their gradients, probabilities and the parameters' gradients before a
step, each by a call of its own; cudaFree frees them after it. Parameters and images stay; kernels and their order are
the same.

Expect: cudaFree waits until the device has finished all work, so a step's launches and kernels no longer overlap: for
softmax regression 45 us of launches and 20 of kernels add up. Four calls of cudaMalloc of about 2 us and three more of
cudaFree come on top: 80 to 90 us a step, twice its parent. A hidden layer adds two calls of each. In layers so wide
that the kernels are the bottleneck the wait costs little, but memory beyond 2 MiB is mapped anew in each step, some 100
us.

Predict: on H200: 784-10, batch 128: 80 to 90 us.

Found: softmax regression took 66 us in a trial, 15 to 20 more than without, and not 40: the host is so slow that only
the last kernel is left when the first cudaFree begins. That call waits once a step; the three after it take 1.4 us
each, as cudaMalloc does. The study `allocators` (docs/studies.md) has networks with a hidden layer: from 512 units on
cudaFree takes 22 to 35 % of a profiled step, and cudaMalloc 19 to 28 %.
"""

from __future__ import annotations

from stages.classic import r4_sparse_metrics
from stages.memory.per_step import PerStep


class CudaMalloc(PerStep):
    """Memory by cudaMalloc and cudaFree."""

    allocator = "cudaMalloc"


STAGE = r4_sparse_metrics.STAGE.climb(
    "alloc-cudamalloc", "Allocate by cudaMalloc in every step", group="memory", memory=CudaMalloc
)
