"""The bottom rung: one hand-written kernel for each operation of the formulas, launched one after the other.

Why: this is how one writes the step down the first time, and what every later rung is measured against. Nothing is
fused, nothing is reused, and the host looks at loss and accuracy after every step.

Change: none; it is the rung that the others climb from.

Expect: eight kernels and one copy to the host a step. The host needs about 4 us for each launch and 14 us for a copy
that it waits for, and it cannot launch ahead across that wait: 50 to 70 us a step for softmax regression on an H200,
whatever the GPU could do. Wider layers add the time of a matrix product with one thread an output.

Found: 73 to 77 us for softmax regression. One thread that walks over 784 factors by itself takes 30 us for the first
product alone, and the host, which waits in every step, cannot hide it behind launches.
The product of that recording walked along pointers, compiled for tiles of one output; this one awaits its recording.
"""

from __future__ import annotations

from stages.engine.parts import (
    AllocatedOnce,
    EpochTotals,
    NaiveGemm,
    OneByOne,
    ResidentFloat32,
    SeparateEpilogue,
    SeparateHead,
    SeparateUpdate,
)
from stages.engine.recipe import Recipe
from stages.engine.stage import rung


class MetricsEveryStep(EpochTotals):
    """Loss and accuracy in every step, and the host waits for them there."""

    def due(self, epoch: int) -> bool:  # noqa: ARG002
        """Always."""
        return True

    def end_step(self) -> None:
        """Copy the totals so far to the host, which waits."""
        self.read()


STAGE = rung(
    "naive",
    "Naive CUDA kernels",
    Recipe(
        memory=AllocatedOnce,
        data=ResidentFloat32,
        gemm=NaiveGemm,
        epilogue=SeparateEpilogue,
        head=SeparateHead,
        update=SeparateUpdate,
        metrics=MetricsEveryStep,
        launch=OneByOne,
    ),
)
