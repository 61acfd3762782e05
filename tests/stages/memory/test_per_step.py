"""A step does the same wherever its tensors and its batches are, and a tensor used out of its time is noticed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from common.problem import Params, Problem, initial_params
from stages.data.pageable import FromPageable
from stages.data.pinned import FromPinned
from stages.data.pinned_overlap import FromPinnedAhead
from stages.engine.recipe import Recipe, RunStep
from stages.engine.step import RecipeTrainer
from stages.engine.workspace import Array
from stages.memory.alloc_cudamalloc import CudaMalloc
from stages.memory.per_step import PerStep
from tests.stages.engine.test_step import random_split
from tests.stages.numpy_parts import RECIPE, HostDevice

PROBLEM = Problem(inputs=13, classes=3, hidden=(6, 5), batch_size=4)


def trained(recipe: Recipe) -> Params:
    trainer = RecipeTrainer(recipe, PROBLEM, random_split(19, 13, 3), HostDevice())
    trainer.load_params(initial_params(PROBLEM, 0))
    trainer.prepare_validation(random_split(7, 13, 3, seed=1))
    for epoch in range(3):
        trainer.run_epoch(epoch)
        trainer.validate()
    return trainer.read_params()


@pytest.mark.parametrize(
    "recipe",
    [
        replace(RECIPE, data=FromPageable),
        replace(RECIPE, data=FromPinned),
        replace(RECIPE, memory=CudaMalloc, data=FromPinnedAhead),
    ],
    ids=["pageable", "pinned", "memory and pinned-overlap"],
)
def test_parameters_are_the_same_bit_for_bit(recipe: Recipe) -> None:
    own, expected = trained(recipe), trained(RECIPE)
    for parameter, other in zip((*own.weights, *own.biases), (*expected.weights, *expected.biases), strict=True):
        np.testing.assert_array_equal(parameter, other)


class TooEarly(PerStep):
    """Gives everything back before the step has begun."""

    allocator = "cudaMalloc"

    def around(self, step: RunStep) -> RunStep:
        def between(images: Array, labels: Array, with_totals: bool) -> None:
            self._step_allocator.acquire()
            self._step_allocator.release()
            step(images, labels, with_totals)

        return between


def test_a_tensor_that_was_given_back_is_not_written() -> None:
    with pytest.raises(ValueError, match="read-only"):
        trained(replace(RECIPE, memory=TooEarly))
