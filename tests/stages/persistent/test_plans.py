"""What cluster-ahead, grid-messages and divided-batch make of a problem: blocks and shares, and what fits."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from common.errors import MisfitError
from common.problem import Problem
from stages.persistent.ahead_plan import MOST_SHARED_BYTES as MOST_AHEAD
from stages.persistent.ahead_plan import AheadPlan
from stages.persistent.batch_plan import BatchPlan
from stages.persistent.batch_plan import plan_for as batch_plan_for
from stages.persistent.cluster_ahead import AheadEpoch
from stages.persistent.cluster_ahead_fp16 import Float16Ahead
from stages.persistent.divided_batch import DividedBatch, of_blocks
from stages.persistent.grid_messages import MessagesEpoch, shares_of
from stages.persistent.messages_plan import EXACT, MOST_SHARED_BYTES, MessagesPlan, plan_for
from tests.stages.numpy_parts import HostDevice
from tests.stages.persistent.test_gpu_misfits import (
    HIDDEN,
    SM_80,
    SM_90,
    SM_90_NONE,
    SM_90_ONE,
    SM_120,
    FakeGpu,
    make,
)

AHEAD = Problem(inputs=784, classes=10, hidden=(256,), batch_size=128)
MESSAGES = Problem(inputs=784, classes=10, hidden=(784,) * 4, batch_size=64)
BATCH = Problem(inputs=784, classes=10, batch_size=900)


@pytest.mark.parametrize(
    ("units", "batch", "size", "turns"), [(64, 9, 4, 1), (65, 1, 8, 1), (1, 33, 8, 1), (257, 1, 16, 2), (513, 1, 16, 4)]
)
def test_there_are_as_few_blocks_and_tiles_as_have_room(units: int, batch: int, size: int, turns: int) -> None:
    plan = AheadPlan(replace(AHEAD, hidden=(units,), batch_size=batch))
    assert (plan.blocks, plan.turns) == (size, turns)
    assert plan.shared_bytes <= MOST_AHEAD


def test_grams_are_made_beside_the_training_where_a_sixth_cluster_fits() -> None:
    grams = make(AheadEpoch, SM_90, HIDDEN)._grams
    assert (grams._clusters, grams._is_beside) == (1, True)


@pytest.mark.parametrize(("hidden", "batch", "shares"), [((784,) * 4, 64, 7), ((256,) * 3, 128, 8), ((1,), 64, 7)])
def test_units_are_divided_in_turn(hidden: tuple[int, ...], batch: int, shares: int) -> None:
    plan = plan_for(replace(MESSAGES, hidden=hidden, batch_size=batch), EXACT, 132)
    assert plan.thick_shares == shares
    assert plan.shared_bytes <= MOST_SHARED_BYTES
    for activations, width in enumerate((784, *hidden)):
        divided = shares if (len(hidden) - activations) % 2 else 16
        assert divided * plan.share(activations) >= width > (divided - 1) * (plan.share(activations) - 1)
        assert 8 * plan.edges(activations) >= plan.share(activations)


def test_each_share_of_the_images_is_there_once() -> None:
    plan = MessagesPlan(Problem(inputs=100, classes=3, hidden=(9, 9), batch_size=10), thin_shares=4, thick_shares=2)
    pixels = np.arange(2 * 1000).reshape(2, 10, 100).astype(np.float32)
    images = shares_of(HostDevice(), list(pixels), plan).view(np.float16)
    assert images.shape == (2, 4, 4, 8, 8, 8)
    rows = images.transpose(0, 1, 3, 4, 2, 5).reshape(2, 4, 64, 32)
    assert (np.concatenate([rows[:, share, :10, :25] for share in range(4)], axis=2) == pixels).all()
    assert not rows[:, :, 10:].any()
    assert not rows[..., 25:].any()


@pytest.mark.parametrize(
    ("batch", "tiles", "blocks"), [(1, 1, 1), (900, 1, 57), (1025, 2, 33), (4000, 2, 125), (4100, 3, 86)]
)
def test_blocks_take_sixteen_images_or_a_few_times_that(batch: int, tiles: int, blocks: int) -> None:
    plan = batch_plan_for(replace(BATCH, batch_size=batch), EXACT, 132)
    assert (plan.image_tiles, plan.image_blocks) == (tiles, blocks)
    assert 16 * tiles * (blocks - 1) < batch <= 16 * tiles * blocks
    assert plan.own_units % 2 == 0
    assert (plan.owners - 1) * plan.own_units < plan.units <= plan.owners * plan.own_units
    assert plan.blocks <= 132
    assert batch_plan_for(BATCH, EXACT, 20).image_tiles == 3


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
    ("part", "problem", "changed", "steps", "reason"),
    [
        (AheadEpoch, AHEAD, {"batch_size": 1, "hidden": (10,)}, 469, ""),
        (AheadEpoch, AHEAD, {"hidden": (1024,)}, 469, ""),
        (AheadEpoch, AHEAD, {"hidden": ()}, 1, "Needs one hidden layer; the network has 0."),
        (AheadEpoch, AHEAD, {"hidden": (9, 9)}, 1, "Needs one hidden layer; the network has 2."),
        (AheadEpoch, AHEAD, {"hidden": (1025,)}, 1, "1025 units exceed the limit of 1024."),
        (AheadEpoch, AHEAD, {"batch_size": 129}, 1, "Batch size 129 exceeds the limit of 128."),
        (AheadEpoch, AHEAD, {"classes": 17}, 1, "17 classes exceed the limit of 16."),
        (AheadEpoch, AHEAD, {"inputs": 1100}, 1, "1100 inputs do not fit the shared memory of 4 blocks."),
        (AheadEpoch, AHEAD, {"batch_size": 1}, 60_000, "60,000 steps exceed the limit of 1,073,741,824 numbers."),
        (MessagesEpoch, MESSAGES, {}, 938, ""),
        (MessagesEpoch, MESSAGES, {"batch_size": 1, "hidden": (10,)}, 469, ""),
        (MessagesEpoch, MESSAGES, {"hidden": ()}, 1, "Needs at least one hidden layer."),
        (MessagesEpoch, MESSAGES, {"hidden": (300, 100), "batch_size": 100}, 600, ""),
        (MessagesEpoch, MESSAGES, {"batch_size": 129}, 1, "Batch size 129 exceeds the limit of 128."),
        (MessagesEpoch, MESSAGES, {"classes": 17}, 1, "17 classes exceed the limit of 16."),
        (MessagesEpoch, MESSAGES, {"hidden": (1025,) * 2}, 1, "1,040 units or inputs exceed the limit of 1,024."),
        (
            MessagesEpoch,
            MESSAGES,
            {"hidden": (784, 9) * 5},
            1,
            "Hidden layers 784,9,784,9,784,9,784,9,784,9 at batch size 64 do not fit 112 multiprocessors.",
        ),
        (MessagesEpoch, MESSAGES, {"batch_size": 1}, 60_000, "60,000 steps exceed the limit of 1,073,741,824 numbers."),
        (DividedBatch, BATCH, {}, 66, ""),
        (DividedBatch, BATCH, {"batch_size": 1, "inputs": 3}, 1000, ""),
        (DividedBatch, BATCH, {"classes": 32}, 66, ""),
        (DividedBatch, BATCH, {"hidden": (9,)}, 1, "Needs a network without hidden layers."),
        (DividedBatch, BATCH, {"batch_size": 6145}, 1, "Batch size 6,145 exceeds the limit of 6,144."),
        (DividedBatch, BATCH, {"classes": 47}, 1, "784 inputs and 47 classes do not fit a multiprocessor."),
        (DividedBatch, BATCH, {"batch_size": 1}, 90_000, "90,000 steps exceed the limit of 1,073,741,824 numbers."),
    ],
)
def test_a_misfit_says_why(part: Any, problem: Problem, changed: dict[str, Any], steps: int, reason: str) -> None:
    assert part.misfit(replace(problem, **changed), steps) == reason
    if part is AheadEpoch:
        assert Float16Ahead.misfit(replace(problem, **changed), steps) == reason


@pytest.mark.parametrize(
    ("part", "problem", "gpu", "reason"),
    [
        (AheadEpoch, HIDDEN, SM_90_ONE, "Needs 5 clusters of 16 blocks at once; this GPU runs 1."),
        (AheadEpoch, HIDDEN, SM_90_NONE, "This GPU cannot run a cluster of 16 blocks."),
        (AheadEpoch, HIDDEN, SM_120, "Needs 206,336 bytes of shared memory a block; this GPU has 101,376."),
        (MessagesEpoch, MESSAGES, SM_80, "Needs 261,760 bytes of shared memory a block; this GPU has 166,912."),
        (
            MessagesEpoch,
            MESSAGES,
            replace(SM_90_NONE, multiprocessors=15),
            "Needs 16 multiprocessors; this GPU has 15.",
        ),
        (MessagesEpoch, MESSAGES, SM_120, "Needs 216,448 bytes of shared memory a block; this GPU has 101,376."),
        (DividedBatch, replace(BATCH, batch_size=1100), SM_90_NONE, "Batch size 1,100 exceeds the limit of 768."),
        (
            DividedBatch,
            replace(BATCH, batch_size=2100),
            SM_120,
            "Needs 205,840 bytes of shared memory a block; this GPU has 101,376.",
        ),
    ],
)
def test_a_gpu_with_too_little_room_is_told_so(part: Any, problem: Problem, gpu: FakeGpu, reason: str) -> None:
    assert make(part, SM_90, problem) is not None
    with pytest.raises(MisfitError, match=re.escape(reason)):
        make(part, gpu, problem)
