"""What rungs that keep a network on the chip, or stream it, make of a problem: blocks, shares and rings."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from common.problem import Problem
from stages.persistent import ahead_plan, batch_plan, hidden_batch_plan, messages_plan
from stages.persistent.divided_batch import of_blocks
from stages.persistent.divided_hidden_fp16 import of_shares
from stages.persistent.grid_messages import shares_of
from stages.persistent.messages_plan import EXACT
from stages.persistent.stationary_plan import StationaryPlan
from stages.streamed import epoch_plan, streaming_epoch
from stages.streamed.weight_panels import stored_at
from tests.stages.numpy_parts import HostDevice

AHEAD = Problem(inputs=784, classes=10, hidden=(256,), batch_size=128)
MESSAGES = Problem(inputs=784, classes=10, hidden=(784,) * 4, batch_size=64)
BATCH = Problem(inputs=784, classes=10, batch_size=900)
DIVIDED = Problem(inputs=784, classes=10, hidden=(256,), batch_size=512)
WIDE = Problem(inputs=784, classes=10, hidden=(2048,) * 3, batch_size=32)


@pytest.mark.parametrize(
    ("units", "batch", "size", "turns"), [(64, 9, 4, 1), (65, 1, 8, 1), (1, 33, 8, 1), (257, 1, 16, 2), (513, 1, 16, 4)]
)
def test_there_are_as_few_blocks_and_tiles_as_have_room(units: int, batch: int, size: int, turns: int) -> None:
    plan = ahead_plan.AheadPlan(replace(AHEAD, hidden=(units,), batch_size=batch))
    assert (plan.blocks, plan.turns) == (size, turns)
    assert plan.shared_bytes <= ahead_plan.MOST_SHARED_BYTES


@pytest.mark.parametrize(("hidden", "batch", "shares"), [((784,) * 4, 64, 7), ((256,) * 3, 128, 8), ((1,), 64, 7)])
def test_units_are_divided_in_turn(hidden: tuple[int, ...], batch: int, shares: int) -> None:
    plan = messages_plan.plan_for(replace(MESSAGES, hidden=hidden, batch_size=batch), EXACT, 132)
    assert plan.thick_shares == shares
    assert plan.shared_bytes <= messages_plan.MOST_SHARED_BYTES
    for activations, width in enumerate((784, *hidden)):
        divided = shares if (len(hidden) - activations) % 2 else 16
        assert divided * plan.share(activations) >= width > (divided - 1) * (plan.share(activations) - 1)
        assert 8 * plan.edges(activations) >= plan.share(activations)


def test_each_share_of_the_images_is_there_once() -> None:
    plan = messages_plan.MessagesPlan(
        Problem(inputs=100, classes=3, hidden=(9, 9), batch_size=10), thin_shares=4, thick_shares=2
    )
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
    plan = batch_plan.plan_for(replace(BATCH, batch_size=batch), EXACT, 132)
    assert (plan.image_tiles, plan.image_blocks) == (tiles, blocks)
    assert 16 * tiles * (blocks - 1) < batch <= 16 * tiles * blocks
    assert plan.own_units % 2 == 0
    assert (plan.owners - 1) * plan.own_units < plan.units <= plan.owners * plan.own_units
    assert plan.blocks <= 132
    assert batch_plan.plan_for(BATCH, EXACT, 20).image_tiles == 3


def test_a_block_s_images_lie_beside_each_other_with_ones_behind_the_last_feature() -> None:
    plan = batch_plan.BatchPlan(Problem(inputs=20, classes=3, batch_size=70), image_tiles=2, own_units=2)
    pixels = np.random.default_rng(0).integers(0, 256, (2, 70, 20)).astype(np.float32) / 256
    images = of_blocks(HostDevice(), list(pixels), plan)
    assert images.shape == (2, 3, 2, 2, 2, 2, 8, 8)
    rows = images.transpose(0, 1, 3, 4, 6, 2, 5, 7).reshape(2, 96, 32)
    assert (rows[:, :70, :20] == pixels).all()
    assert (rows[:, :, 20] == 1).all()
    assert not rows[:, 70:, :20].any()
    assert not rows[:, :, 21:].any()


@pytest.mark.parametrize(
    ("hidden", "images", "pieces"),
    [((2048,) * 3, (8, 14, 4, 8, 8), 7), ((1200,) * 4, (16, 8, 4, 8, 8), 0), ((1536,) * 4, (16, 8, 4, 8, 8), 0)],
)
def test_a_block_holds_its_weights(hidden: tuple[int, ...], images: tuple[int, ...], pieces: int) -> None:
    plan = StationaryPlan(replace(WIDE, hidden=hidden))
    assert plan.images_shape == images
    assert plan.shared_pieces == pieces
    assert plan.shared_bytes <= messages_plan.MOST_SHARED_BYTES


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
    plan = hidden_batch_plan.plan_for(replace(DIVIDED, **changed), 1, 132)
    assert (plan.image_shares, plan.unit_shares, plan.unit_tiles) == table
    assert plan.blocks == table[0] * table[1] <= 132
    assert plan.fragments <= plan.own * plan.image_shares


def test_a_share_s_images_lie_beside_each_other_with_ones_behind_the_last_feature() -> None:
    plan = hidden_batch_plan.HiddenBatchPlan(replace(DIVIDED, inputs=20, batch_size=70))
    pixels = np.random.default_rng(0).integers(0, 256, (2, 70, 20)).astype(np.float32) / 256
    images = of_shares(HostDevice(), list(pixels), plan)
    assert images.shape == (2, *plan.images_shape)
    rows = images.transpose(0, 1, 4, 5, 6, 2, 3, 7).reshape(2, 128, 32)
    assert (rows[:, :70, :20] == pixels).all()
    assert (rows[:, :, 20] == 1).all()
    assert not rows[:, 70:, :20].any()
    assert not rows[:, :, 21:].any()


@pytest.mark.parametrize(
    ("hidden", "batch", "slots"),
    [((2048,) * 4, 64, 6), ((2048,) * 3, 32, 10), ((2048,) * 2, 33, 8), ((4096,) * 3, 32, 8), ((8192,) * 2, 32, 6)],
)
def test_a_ring_takes_the_memory_that_activations_leave(hidden: tuple[int, ...], batch: int, slots: int) -> None:
    plan = epoch_plan.EpochPlan(replace(WIDE, hidden=hidden, batch_size=batch))
    assert plan.slots == slots
    assert plan.shared_bytes <= epoch_plan.MOST_SHARED_BYTES
    assert plan.own_units <= epoch_plan.TAKERS


@pytest.mark.parametrize(
    ("hidden", "batch", "slots"), [((4096,) * 3, 32, 6), ((2048,) * 3, 32, 8), ((2048,) * 3, 64, 4)]
)
def test_what_is_kept_takes_slots_of_the_ring(hidden: tuple[int, ...], batch: int, slots: int) -> None:
    plan = epoch_plan.EpochPlan(replace(WIDE, hidden=hidden, batch_size=batch), deferred=True)
    assert plan.slots == slots
    assert plan.shared_bytes <= epoch_plan.MOST_SHARED_BYTES


def test_each_share_of_the_images_is_there_once_in_the_order_of_its_rows_of_weights() -> None:
    plan = epoch_plan.EpochPlan(
        Problem(inputs=208, classes=3, hidden=(512, 512), batch_size=10), thin_shares=4, thick_shares=2
    )
    pixels = np.arange(2 * 2080).reshape(2, 10, 208).astype(np.float32) % 256
    bits = streaming_epoch.shares_of(HostDevice(), list(pixels), plan)
    assert bits.shape == (2, 4, 8, 4, 8, 8)
    images = (bits.astype(np.uint32) << 16).view(np.float32).transpose(0, 3, 5, 1, 2, 4).reshape(2, 32, 256)
    assert (images[:, :10, stored_at(np.arange(208))] == pixels).all()
    assert not images[:, 10:].any()
    assert not images[..., 208:].any()
