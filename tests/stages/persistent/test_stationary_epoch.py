"""What stationary-epoch makes of a problem: the division among blocks, and what fits."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from common.errors import MisfitError
from common.problem import Problem
from stages.persistent.messages_plan import MOST_SHARED_BYTES
from stages.persistent.stationary_epoch import StationaryEpoch
from stages.persistent.stationary_plan import StationaryPlan
from tests.stages.persistent.test_gpu_misfits import SM_80, SM_90, FakeGpu, make


def problem(**changed: Any) -> Problem:
    return replace(Problem(inputs=784, classes=10, hidden=(2048,) * 3, batch_size=32), **changed)


@pytest.mark.parametrize(
    ("hidden", "images", "pieces"),
    [((2048,) * 3, (8, 14, 4, 8, 8), 7), ((1200,) * 4, (16, 8, 4, 8, 8), 0), ((1536,) * 4, (16, 8, 4, 8, 8), 0)],
)
def test_a_block_holds_its_weights(hidden: tuple[int, ...], images: tuple[int, ...], pieces: int) -> None:
    plan = StationaryPlan(problem(hidden=hidden))
    assert plan.images_shape == images
    assert plan.shared_pieces == pieces
    assert plan.shared_bytes <= MOST_SHARED_BYTES


@pytest.mark.parametrize(
    ("changed", "steps", "reason"),
    [
        ({}, 1875, ""),
        ({"hidden": (1200,) * 4, "inputs": 785, "batch_size": 31, "classes": 16}, 1875, ""),
        ({"hidden": (2048,)}, 1, "Needs at least 2 hidden layers, all of one size."),
        ({"hidden": (2048, 1024)}, 1, "Needs at least 2 hidden layers, all of one size."),
        ({"hidden": (2049,) * 2}, 1, "2,049 hidden units exceed the limit of 2,048."),
        ({"batch_size": 33}, 1, "Batch size 33 exceeds the limit of 32."),
        ({"classes": 17}, 1, "17 classes exceed the limit of 16."),
        ({"hidden": (2048,) * 4}, 1, "Hidden layers 2048,2048,2048,2048 do not fit 128 multiprocessors."),
        ({"inputs": 2000}, 1, "Hidden layers 2048,2048,2048 do not fit 128 multiprocessors."),
        ({"batch_size": 1}, 60_000, "60,000 steps exceed the limit of 1,073,741,824 numbers."),
    ],
)
def test_a_misfit_says_why(changed: dict[str, Any], steps: int, reason: str) -> None:
    assert StationaryEpoch.misfit(problem(**changed), steps) == reason


@pytest.mark.parametrize(
    ("gpu", "reason"),
    [
        (SM_80, "Needs the warpgroup products of an sm_90 GPU."),
        (replace(SM_90, multiprocessors=114), "Needs 128 multiprocessors; this GPU has 114."),
    ],
    ids=["sm_80", "few"],
)
def test_another_gpu_is_told_so(gpu: FakeGpu, reason: str) -> None:
    assert make(StationaryEpoch, SM_90, problem()) is not None
    with pytest.raises(MisfitError, match=re.escape(reason)):
        make(StationaryEpoch, gpu, problem())
