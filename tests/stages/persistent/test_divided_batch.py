"""What divided-batch makes of a problem: blocks and owners, and what fits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from common.errors import MisfitError
from common.problem import Problem
from stages.persistent.batch_plan import BatchPlan, plan_for
from stages.persistent.divided_batch import DividedBatch, of_blocks
from stages.persistent.messages_plan import EXACT
from tests.stages.numpy_parts import HostDevice
from tests.stages.persistent.test_gpu_misfits import SM_90, SM_90_NONE, SM_120, make


def problem(**changed: Any) -> Problem:
    return replace(Problem(inputs=784, classes=10, batch_size=900), **changed)


@pytest.mark.parametrize(
    ("batch", "tiles", "blocks"), [(1, 1, 1), (900, 1, 57), (1025, 2, 33), (4000, 2, 125), (4100, 3, 86)]
)
def test_blocks_take_sixteen_images_or_a_few_times_that(batch: int, tiles: int, blocks: int) -> None:
    plan = plan_for(problem(batch_size=batch), EXACT, 132)
    assert (plan.image_tiles, plan.image_blocks) == (tiles, blocks)
    assert 16 * tiles * (blocks - 1) < batch <= 16 * tiles * blocks
    assert plan.own_units % 2 == 0
    assert (plan.owners - 1) * plan.own_units < plan.units <= plan.owners * plan.own_units
    assert plan.blocks <= 132


def test_a_block_s_images_lie_beside_each_other_with_ones_behind_the_last_feature() -> None:
    plan = BatchPlan(Problem(inputs=20, classes=3, batch_size=70), image_tiles=2, own_units=2)
    pixels = np.random.default_rng(0).integers(0, 256, (2, 70, 20)).astype(np.float32) / 256
    images = of_blocks(HostDevice(), list(pixels), plan)
    assert images.shape == (2, 3, 2, 2, 2, 2, 8, 8)
    rows = images.transpose(0, 1, 3, 4, 6, 2, 5, 7).reshape(2, 96, 32)
    assert (rows[:, :70, :20] == pixels).all()
    assert (rows[:, :, 20] == 1).all()
    assert not rows[:, 70:, :20].any()
    assert not rows[:, :, 21:].any()


@pytest.mark.parametrize(
    ("changed", "steps", "reason"),
    [
        ({}, 66, ""),
        ({"batch_size": 1, "inputs": 3}, 1000, ""),
        ({"classes": 32}, 66, ""),
        ({"hidden": (9,)}, 1, "Needs a network without hidden layers."),
        ({"batch_size": 6145}, 1, "Batch size 6,145 exceeds the limit of 6,144."),
        ({"classes": 47}, 1, "784 inputs and 47 classes do not fit a multiprocessor."),
        ({"batch_size": 1}, 90_000, "90,000 steps exceed the limit of 1,073,741,824 numbers."),
    ],
)
def test_a_misfit_says_why(changed: dict[str, Any], steps: int, reason: str) -> None:
    assert DividedBatch.misfit(problem(**changed), steps) == reason


def test_a_gpu_with_too_little_room_is_told_so() -> None:
    assert make(DividedBatch, SM_90, problem()) is not None
    assert plan_for(problem(), EXACT, 20).image_tiles == 3
    with pytest.raises(MisfitError, match=r"Batch size 1,100 exceeds the limit of 768\."):
        make(DividedBatch, SM_90_NONE, problem(batch_size=1100))
    with pytest.raises(MisfitError, match=r"Needs 205,840 bytes of shared memory a block; this GPU has 101,376\."):
        make(DividedBatch, SM_120, problem(batch_size=2100))
