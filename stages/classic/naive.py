"""Naive: one hand-written kernel per operation; the host reads loss and accuracy in every step.

Why: it is the first version that one writes from the formulas, and the base of every later rung. Nothing is fused or
reused, and the host reads loss and accuracy after every step.

Change: none; the other rungs climb from it.

Expect: eight kernels and one copy to the host a step. A launch takes the host about 4 us, a copy with a wait 14 us,
and the host cannot launch ahead across that wait: 50 to 70 us per step for softmax regression on an H200, whatever the
GPU's speed. Wider layers add the time of a matrix product with one thread an output.

Predict: on H200: 784-10, batch 128: 50 to 70 us.

Found: a step takes longer than predicted, since the prediction counted the host alone: kernels are about half of it.
The first product has eight blocks for 132 multiprocessors, and each of its threads walks over 784 factors. The wait in
every step adds the host's launches to the kernels, where one could hide the other.
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
from stages.engine.stage import Stage


class MetricsEveryStep(EpochTotals):
    """Loss and accuracy in every step, each with a wait of the host."""

    def due(self, epoch: int) -> bool:  # noqa: ARG002
        """Always."""
        return True

    def end_step(self) -> None:
        """Copy the totals to the host, with a wait."""
        self.read()


STAGE = Stage.from_recipe(
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
    words="a kernel per operation, loss read each step",
)
