"""What fits the clusters of cluster-ahead, and the order of its launches."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from common.errors import MisfitError
from common.problem import Problem
from stages.persistent.ahead_plan import MOST_SHARED_BYTES, AheadPlan
from stages.persistent.cluster_ahead import AheadEpoch
from stages.persistent.cluster_ahead_fp16 import Float16Ahead
from tests.stages.persistent.test_gpu_misfits import HIDDEN, SM_90, SM_90_NONE, SM_90_ONE, SM_120, FakeGpu, make


def problem(**changed: Any) -> Problem:
    return replace(Problem(inputs=784, classes=10, hidden=(256,), batch_size=128), **changed)


@pytest.mark.parametrize(
    ("units", "batch", "size", "turns"), [(64, 9, 4, 1), (65, 1, 8, 1), (1, 33, 8, 1), (257, 1, 16, 2), (513, 1, 16, 4)]
)
def test_there_are_as_few_blocks_and_tiles_as_have_room(units: int, batch: int, size: int, turns: int) -> None:
    plan = AheadPlan(problem(hidden=(units,), batch_size=batch))
    assert (plan.blocks, plan.turns) == (size, turns)
    assert plan.shared_bytes <= MOST_SHARED_BYTES


@pytest.mark.parametrize(
    ("changed", "steps", "reason"),
    [
        ({"batch_size": 1, "hidden": (10,)}, 469, ""),
        ({"hidden": (1024,)}, 469, ""),
        ({"hidden": ()}, 1, "Needs one hidden layer; the network has 0."),
        ({"hidden": (9, 9)}, 1, "Needs one hidden layer; the network has 2."),
        ({"hidden": (1025,)}, 1, "1025 units exceed the limit of 1024."),
        ({"batch_size": 129}, 1, "Batch size 129 exceeds the limit of 128."),
        ({"classes": 17}, 1, "17 classes exceed the limit of 16."),
        ({"inputs": 1100}, 1, "1100 inputs do not fit the shared memory of 4 blocks."),
        ({"batch_size": 1}, 60_000, "60,000 steps exceed the limit of 1,073,741,824 numbers."),
    ],
)
def test_a_misfit_says_why(changed: dict[str, Any], steps: int, reason: str) -> None:
    for part in (AheadEpoch, Float16Ahead):
        assert part.misfit(problem(**changed), steps) == reason


@pytest.mark.parametrize(
    ("gpu", "reason"),
    [
        (SM_90_ONE, "Needs 5 clusters of 16 blocks at once; this GPU runs 1."),
        (SM_90_NONE, "This GPU cannot run a cluster of 16 blocks."),
        (SM_120, "Needs 206,336 bytes of shared memory a block; this GPU has 101,376."),
    ],
    ids=["one", "none", "little memory"],
)
def test_a_gpu_with_too_little_room_is_told_so(gpu: FakeGpu, reason: str) -> None:
    with pytest.raises(MisfitError) as told:
        make(AheadEpoch, gpu, HIDDEN)
    assert str(told.value) == reason


def test_grams_are_made_beside_the_training_where_a_sixth_cluster_fits() -> None:
    grams = make(AheadEpoch, SM_90, HIDDEN)._grams
    assert (grams._clusters, grams._is_beside) == (1, True)
