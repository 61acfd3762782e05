"""What grid-messages makes of a problem: the division among blocks, and what fits."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from common.errors import MisfitError
from common.problem import Problem
from stages.persistent.grid_messages import MessagesEpoch, shares_of
from stages.persistent.messages_plan import EXACT, MOST_SHARED_BYTES, MessagesPlan, plan_for
from tests.stages.numpy_parts import HostDevice
from tests.stages.persistent.test_gpu_misfits import SM_80, SM_90, SM_90_NONE, SM_120, FakeGpu, make


def problem(**changed: Any) -> Problem:
    return replace(Problem(inputs=784, classes=10, hidden=(784,) * 4, batch_size=64), **changed)


@pytest.mark.parametrize(("hidden", "batch", "shares"), [((784,) * 4, 64, 7), ((256,) * 3, 128, 8), ((1,), 64, 7)])
def test_units_are_divided_in_turn(hidden: tuple[int, ...], batch: int, shares: int) -> None:
    plan = plan_for(problem(hidden=hidden, batch_size=batch), EXACT, 132)
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
    ("changed", "steps", "reason"),
    [
        ({}, 938, ""),
        ({"batch_size": 1, "hidden": (10,)}, 469, ""),
        ({"hidden": ()}, 1, "Needs at least one hidden layer."),
        ({"hidden": (300, 100), "batch_size": 100}, 600, ""),
        ({"batch_size": 129}, 1, "Batch size 129 exceeds the limit of 128."),
        ({"classes": 17}, 1, "17 classes exceed the limit of 16."),
        ({"hidden": (1025,) * 2}, 1, "1,040 units or inputs exceed the limit of 1,024."),
        (
            {"hidden": (784, 9) * 5},
            1,
            "Hidden layers 784,9,784,9,784,9,784,9,784,9 at batch size 64 do not fit 112 multiprocessors.",
        ),
        ({"batch_size": 1}, 60_000, "60,000 steps exceed the limit of 1,073,741,824 numbers."),
    ],
)
def test_a_misfit_says_why(changed: dict[str, Any], steps: int, reason: str) -> None:
    assert MessagesEpoch.misfit(problem(**changed), steps) == reason


@pytest.mark.parametrize(
    ("gpu", "reason"),
    [
        (SM_80, "Needs 261,760 bytes of shared memory a block; this GPU has 166,912."),
        (replace(SM_90_NONE, multiprocessors=15), "Needs 16 multiprocessors; this GPU has 15."),
        (SM_120, "Needs 216,448 bytes of shared memory a block; this GPU has 101,376."),
    ],
    ids=["sm_80", "few", "little memory"],
)
def test_a_gpu_with_too_little_room_is_told_so(gpu: FakeGpu, reason: str) -> None:
    assert make(MessagesEpoch, SM_90, problem()) is not None
    with pytest.raises(MisfitError, match=re.escape(reason)):
        make(MessagesEpoch, gpu, problem())
