"""Naive: one hand-written kernel an operation; the host reads loss and accuracy in every step.

Why: it is the first version that one writes from the formulas, and the base of every later rung. Nothing is fused or
reused, and the host reads loss and accuracy after every step.

Change: none; the other rungs climb from it.

Expect: eight kernels and one copy to the host a step. A launch takes the host about 4 us, a copy with a wait 14 us,
and the host cannot launch ahead across that wait: 50 to 70 us a step for softmax regression on an H200, whatever the
GPU's speed. Wider layers add the time of a matrix product with one thread an output.

Predict: on H200: 784-10, batch 128: 50 to 70 us.

Found: recorded on an H200: {784-10} us for 784-10, {784-256-10} for 784-256-10, {784-128x3-10} for 784-128x3-10 in
batches of 32. In 784-10 the first product alone takes 28 us, since each thread walks over 784 factors. The host waits
in every step, so its launches cannot hide that time.
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
    words="one kernel an operation, loss read each step",
)
