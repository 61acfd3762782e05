"""cudaMalloc in every step: each tensor of a step is allocated before it and freed after it.

Why: the rungs allocate everything during preparation, which needs a program that knows its tensors beforehand. A
program that writes `float* output; cudaMalloc(&output, ...)` where needed, and frees it when done, knows nothing
beforehand.

Change: memory. cudaMalloc allocates outputs, their gradients, probabilities and the parameters' gradients before a
step, each by a call of its own; cudaFree frees them after it. Parameters and images stay; kernels and their order are
the same.

Expect: cudaFree waits until the device has finished all work, so a step's launches and kernels no longer overlap: for
softmax regression 45 us of launches and 20 of kernels add up. Four calls of cudaMalloc of about 2 us and three more of
cudaFree come on top: 80 to 90 us per step, twice its parent. A hidden layer adds two calls of each. In layers so wide
that the kernels are the bottleneck the wait costs little, but memory beyond 2 MiB is mapped anew in each step, some 100
us.

Predict: on H200: 784-10, batch 128: 80 to 90 us.

Found: a small step loses less than predicted: the host is so slow that only the last kernel is left when the first
cudaFree waits for it. From 512 units on a step takes two to more than four times as long (study `allocators`), and much
of the added time is the host's in the calls themselves, which take longer for larger tensors.
"""

from __future__ import annotations

from stages.classic import sparse_metrics
from stages.memory.per_step import PerStep


class CudaMalloc(PerStep):
    """Memory by cudaMalloc and cudaFree."""

    allocator = "cudaMalloc"


STAGE = sparse_metrics.STAGE.climb(
    "alloc-cudamalloc", "Allocate by cudaMalloc in every step", group="memory", memory=CudaMalloc
)
