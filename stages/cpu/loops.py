"""CPU loops: one compiled loop nest per operation; loss and accuracy are read in every step.

Why: it is `naive` without a GPU: the same parts, each kernel translated to loops that Numba compiles as they are
written. A product adds up one number at a time, in the order of its inputs, since floating-point sums may not be
reordered without permission; so no vector helps.

Change: none; the other CPU rungs climb from it. One thread.

Expect: a product's sum takes four cycles an addition, a million of them forward and a million for the gradient:
2 million * 4 / 4 GHz = 2,000 us per step for softmax regression. Everything else is small beside it.

Predict: on CPU: 784-10, batch 128: 2000 us.

Found: it is a third faster than predicted: an addition in a chain takes less than the four cycles that were assumed;
why is not explained. Products are nearly all of a step, at a few per cent of the rate that NumPy's product reaches on
one core.
"""

from __future__ import annotations

from stages.classic.naive import MetricsEveryStep
from stages.cpu.products import LoopGemm
from stages.engine.parts import AllocatedOnce, OneByOne, ResidentFloat32, SeparateEpilogue, SeparateHead, SeparateUpdate
from stages.engine.recipe import Recipe
from stages.engine.stage import Place, Stage
from stages.engine.workspace import Device


def _host() -> Device:
    from common.cpu.host import Host  # here, so that a machine without Numba can list the rungs
    from stages.cpu.kernels import KERNELS

    return Host(KERNELS)


STAGE = Stage.from_recipe(
    "cpu-loops",
    "Compiled loops",
    Recipe(
        memory=AllocatedOnce,
        data=ResidentFloat32,
        gemm=LoopGemm,
        epilogue=SeparateEpilogue,
        head=SeparateHead,
        update=SeparateUpdate,
        metrics=MetricsEveryStep,
        launch=OneByOne,
    ),
    group="cpu",
    place=Place(_host, ("numba",)),
    words="one loop nest per operation",
)
