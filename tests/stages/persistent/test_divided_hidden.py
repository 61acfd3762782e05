"""What divided-hidden-fp16 makes of a problem: its table of blocks, and what fits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from common.problem import Problem
from stages.persistent.divided_hidden_fp16 import Float16Hidden, of_shares
from stages.persistent.hidden_batch_plan import HiddenBatchPlan, plan_for
from tests.stages.numpy_parts import HostDevice
from tests.stages.persistent.test_gpu_misfits import SM_90, make


def problem(**changed: Any) -> Problem:
    return replace(Problem(inputs=784, classes=10, hidden=(256,), batch_size=512), **changed)


@pytest.mark.parametrize(
    ("changed", "table"),
    [
        ({}, (8, 16, 1)),
        ({"batch_size": 1024}, (16, 8, 2)),
        ({"hidden": (17,), "batch_size": 65}, (2, 2, 1)),
        ({"inputs": 487, "classes": 4, "hidden": (354,), "batch_size": 1217}, (20, 6, 4)),
        ({"classes": 47}, (8, 16, 1)),
        ({"classes": 62, "hidden": (128,)}, (8, 8, 1)),
    ],
)
def test_blocks_form_a_table_of_images_by_units(changed: dict[str, Any], table: tuple[int, int, int]) -> None:
    plan = plan_for(problem(**changed), 1, 132)
    assert (plan.image_shares, plan.unit_shares, plan.unit_tiles) == table
    assert plan.blocks == table[0] * table[1] <= 132
    assert plan.fragments <= plan.own * plan.image_shares


def test_a_share_s_images_lie_beside_each_other_with_ones_behind_the_last_feature() -> None:
    plan = HiddenBatchPlan(problem(inputs=20, batch_size=70))
    pixels = np.random.default_rng(0).integers(0, 256, (2, 70, 20)).astype(np.float32) / 256
    images = of_shares(HostDevice(), list(pixels), plan)
    assert images.shape == (2, *plan.images_shape)
    rows = images.transpose(0, 1, 4, 5, 6, 2, 3, 7).reshape(2, 128, 32)
    assert (rows[:, :70, :20] == pixels).all()
    assert (rows[:, :, 20] == 1).all()
    assert not rows[:, 70:, :20].any()
    assert not rows[:, :, 21:].any()


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"hidden": ()}, "Needs one hidden layer."),
        ({"hidden": (9, 9)}, "Needs one hidden layer."),
        ({"hidden": (513,)}, "513 hidden units exceed the limit of 512."),
        ({"classes": 65}, "65 classes exceed the limit of 64."),
        ({"batch_size": 2048}, "784 inputs and 256 units at batch size 2,048 do not fit 132 multiprocessors."),
        ({"batch_size": 1, "hidden": (1,)}, "90,000 steps exceed the limit of 1,073,741,824 numbers."),
    ],
)
def test_a_misfit_says_why(changed: dict[str, Any], reason: str) -> None:
    assert Float16Hidden.misfit(problem(**changed), 90_000 if "steps" in reason else 1) == reason


def test_it_is_made_on_a_gpu_with_room() -> None:
    assert make(Float16Hidden, SM_90, problem()) is not None
