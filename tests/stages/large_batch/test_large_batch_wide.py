"""Wide layers on the CPU: the kernels by the shim, the library's products by NumPy, against the oracle."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from common.cuda.epilogue import Fusion
from common.problem import Problem
from stages.engine.step import RecipeTrainer
from stages.large_batch.large_batch_wide import WideEpoch, shapes
from tests.cpu_cuda.shim import Shim, requires_compiler
from tests.stages.engine.test_step import assert_first_updates, random_split
from tests.stages.large_batch.test_halves_epoch import BitsDevice
from tests.stages.numpy_parts import RECIPE


class Library:
    """Products with sums in float32, and ReLU's masks."""

    def __init__(self) -> None:
        self._masks: dict[int, Any] = {}

    def __call__(
        self,
        a: Any,
        b: Any,
        out: Any,
        trans_a: bool,
        trans_b: bool,
        alpha: float,
        beta: float,
        fusion: Fusion | None = None,
    ) -> None:
        left, right = a.T if trans_a else a, b.T if trans_b else b
        product = np.float32(alpha) * (left.astype(np.float32) @ right.astype(np.float32))
        assert beta == 0
        if fusion is not None and fusion.kind == "relu":
            self._masks[id(fusion.mask)] = product > 0
        out[...] = product if fusion is None else product * self._masks[id(fusion.mask)]


class ByNumpy(WideEpoch):
    def product(self, setup: Any) -> Any:
        return Library()


@requires_compiler
@pytest.mark.parametrize(
    ("hidden", "classes", "batch"),
    [((1,), 1, 1), ((300,), 10, 33), ((35, 20), 47, 40), ((8, 40, 7, 16), 3, 80)],
    ids=str,
)
def test_first_updates_are_the_oracle_s(hidden: tuple[int, ...], classes: int, batch: int, shim: Shim) -> None:
    problem = Problem(inputs=17, classes=classes, hidden=hidden, batch_size=batch, metrics_every=2)
    split = random_split(3 * batch + batch // 2, problem.inputs, classes)
    recipe = replace(RECIPE, launch=ByNumpy)
    trainer = RecipeTrainer(recipe, problem, split, BitsDevice(shim))
    for run, number in ((0, 1), (1, 0)):  # with totals and without, the second from other parameters
        assert_first_updates(trainer, problem, split, recipe.precision, run, number)


def test_matrices_have_room_for_biases_and_ones() -> None:
    assert shapes(Problem(16, 8, (7, 8))) == [(24, 8), (8, 16), (16, 8)]
