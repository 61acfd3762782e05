"""cudaMalloc in every step: each tensor that a step makes has memory of its own for as long as the step takes.

Why: the rungs allocate everything while they prepare, which takes a program that knows its tensors beforehand. Who
writes `float* output; cudaMalloc(&output, ...)` where it is needed, and frees it when done, knows nothing beforehand.

Change: memory. Outputs, their gradients, probabilities and the parameters' gradients are each taken by cudaMalloc
before a step and given back by cudaFree after it. Parameters and images stay; kernels and their order are the same.

Expect: cudaFree waits until the device has finished what was handed over, so that a step's launches and its kernels no
longer overlap: for softmax regression the 45 us of launching and the 20 of kernels add up. Four calls of cudaMalloc at
about 2 us and three more of cudaFree come on top: 80 to 90 us a step, twice the rung below. Five calls more of each for
a hidden layer add what they cost; with layers so wide that the kernels are the bound, the waiting costs little, but
memory of more than 2 MiB has to be mapped anew in each step, some 100 us.

Found: 66 us in a trial that is not among the recorded runs, 15 to 20 more than without, and not 40. The host is so slow
that the last kernel alone is left to do when the first cudaFree begins: that one waits, once a step, and the three
after it take 1.4 us each, as cudaMalloc does.
"""

from __future__ import annotations

from stages.classic import r4_sparse_metrics
from stages.memory.step_memory import PerStep


class CudaMalloc(PerStep):
    """cudaMalloc and cudaFree."""

    allocator = "cudaMalloc"


STAGE = r4_sparse_metrics.STAGE.climb(
    "alloc-cudamalloc", "Allocate by cudaMalloc in every step", group="memory", memory=CudaMalloc
)
