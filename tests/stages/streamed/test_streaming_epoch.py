"""What streaming-epoch makes of a problem: the division among blocks, and what fits."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from common.errors import MisfitError
from common.problem import Problem
from stages.streamed import deferred_epoch
from stages.streamed.epoch_plan import MOST_SHARED_BYTES, TAKERS, EpochPlan
from stages.streamed.streaming_epoch import StreamingEpoch, shares_of
from stages.streamed.weight_panels import stored_at
from tests.stages.numpy_parts import HostDevice
from tests.stages.persistent.test_gpu_misfits import SM_80, SM_90, SM_120, FakeGpu, make


def problem(**changed: Any) -> Problem:
    return replace(Problem(inputs=784, classes=10, hidden=(2048,) * 3, batch_size=32), **changed)


@pytest.mark.parametrize(
    ("hidden", "batch", "slots"),
    [((2048,) * 4, 64, 6), ((2048,) * 3, 32, 10), ((2048,) * 2, 33, 8), ((4096,) * 3, 32, 8), ((8192,) * 2, 32, 6)],
)
def test_a_ring_takes_the_memory_that_activations_leave(hidden: tuple[int, ...], batch: int, slots: int) -> None:
    plan = EpochPlan(problem(hidden=hidden, batch_size=batch))
    assert plan.slots == slots
    assert plan.shared_bytes <= MOST_SHARED_BYTES
    assert plan.own_units <= TAKERS


@pytest.mark.parametrize(
    ("hidden", "batch", "slots"), [((4096,) * 3, 32, 6), ((2048,) * 3, 32, 8), ((2048,) * 3, 64, 4)]
)
def test_what_is_kept_takes_slots_of_the_ring(hidden: tuple[int, ...], batch: int, slots: int) -> None:
    plan = EpochPlan(problem(hidden=hidden, batch_size=batch), deferred=True)
    assert plan.slots == slots
    assert plan.shared_bytes <= MOST_SHARED_BYTES


def test_a_network_too_large_to_be_deferred_is_led_to_its_parent() -> None:
    wide = problem(hidden=(8192,) * 2)
    assert StreamingEpoch.misfit(wide, 1) == ""
    told = "Needs 264,432 bytes of shared memory a block; there are 232,448. Closest rung here: `streaming-epoch`."
    assert deferred_epoch.STAGE.misfit(wide, 1) == told


def test_each_share_of_the_images_is_there_once_in_the_order_of_its_rows_of_weights() -> None:
    plan = EpochPlan(Problem(inputs=208, classes=3, hidden=(512, 512), batch_size=10), thin_shares=4, thick_shares=2)
    pixels = np.arange(2 * 2080).reshape(2, 10, 208).astype(np.float32) % 256
    bits = shares_of(HostDevice(), list(pixels), plan)
    assert bits.shape == (2, 4, 8, 4, 8, 8)
    images = (bits.astype(np.uint32) << 16).view(np.float32).transpose(0, 3, 5, 1, 2, 4).reshape(2, 32, 256)
    assert (images[:, :10, stored_at(np.arange(208))] == pixels).all()
    assert not images[:, 10:].any()
    assert not images[..., 208:].any()


@pytest.mark.parametrize(
    ("changed", "steps", "reason"),
    [
        ({}, 1875, ""),
        ({"hidden": (2048,) * 4, "batch_size": 64}, 937, ""),
        ({"hidden": (2048,) * 2}, 1875, ""),
        ({"hidden": (2048,) * 5}, 1, "Needs 2 to 4 hidden layers, all of one size."),
        ({"hidden": (2048,)}, 1, "Needs 2 to 4 hidden layers, all of one size."),
        ({"hidden": (2048, 4096)}, 1, "Needs 2 to 4 hidden layers, all of one size."),
        ({"hidden": (1024,) * 3}, 1, "1,024 hidden units are not a multiple of 2,048."),
        ({"batch_size": 65}, 1, "Batch size 65 exceeds the limit of 64."),
        ({"classes": 17}, 1, "17 classes exceed the limit of 16."),
        ({"inputs": 500}, 1, "500 inputs are not a multiple of 16."),
        ({"hidden": (4096,) * 3}, 1875, ""),
        ({"hidden": (8192,) * 2}, 1875, ""),
        ({"hidden": (8192,) * 3}, 1, "Needs 236,272 bytes of shared memory a block; there are 232,448."),
        (
            {"hidden": (4096,) * 4, "batch_size": 64},
            1,
            "Needs 294,640 bytes of shared memory a block; there are 232,448.",
        ),
        ({"hidden": (10_240,) * 2}, 1, "10,240 hidden units exceed the limit of 8,192."),
        ({"hidden": (6144,) * 2, "batch_size": 64}, 1, "6,144 hidden units exceed the limit of 4,096."),
        ({"batch_size": 1}, 60_000, "60,000 steps exceed the limit of 1,073,741,824 numbers."),
    ],
)
def test_a_misfit_says_why(changed: dict[str, Any], steps: int, reason: str) -> None:
    assert StreamingEpoch.misfit(problem(**changed), steps) == reason


@pytest.mark.parametrize(
    ("gpu", "reason"),
    [
        (SM_80, "Needs the warpgroup products of an sm_90 GPU."),
        (SM_120, "Needs the warpgroup products of an sm_90 GPU."),
        (replace(SM_90, multiprocessors=114), "Needs 128 multiprocessors; this GPU has 114."),
    ],
    ids=["sm_80", "sm_120", "few"],
)
def test_another_gpu_is_told_so(gpu: FakeGpu, reason: str) -> None:
    assert make(StreamingEpoch, SM_90, problem()) is not None
    with pytest.raises(MisfitError, match=re.escape(reason)):
        make(StreamingEpoch, gpu, problem())
