"""Plans of networks in a cluster: what lies where, and what fits. tests/kernels executes them."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace

import numpy as np
import pytest

from common.problem import Problem
from stages.engine.workspace import KERNELS, ParameterMemory
from stages.persistent.cluster_fp16 import STAGE as FLOAT16
from stages.persistent.cluster_plan import (
    EXACT,
    MOST_SHARED_BYTES,
    ROUNDED,
    STATIC_BYTES,
    Plan,
    plan_for,
    plans,
)
from stages.persistent.fragments import matrices
from stages.persistent.persistent_cluster import STAGE
from tests.stages.numpy_parts import HostDevice

LIMIT = MOST_SHARED_BYTES - STATIC_BYTES
TOO_LARGE = "do not fit 16 multiprocessors with 227 KiB of shared memory each."
SIZES = [
    ((128, 128, 128), 32, 784, 1),
    ((256,), 128, 784, 4),
    ((17, 5, 9), 31, 49, 1),
    ((130, 24), 100, 70, 2),
    ((130, 140, 150), 32, 70, 2),
    ((24, 40, 8, 16), 16, 49, 16),
    ((220, 70), 72, 70, 4),
    ((40, 24), 200, 70, 2),
]


@pytest.mark.parametrize(
    ("hidden", "batch", "halves", "split"),
    [((220, 70), 72, EXACT, 4), ((220, 70), 72, ROUNDED, 4), ((220,), 72, EXACT, 2), ((128, 128, 128), 32, EXACT, 0)],
    ids=str,
)
def test_warpgroups_multiply_where_units_fill_their_rows(
    hidden: tuple[int, ...], batch: int, halves: int, split: int
) -> None:
    plan = plan_for(Problem(784, 10, hidden, batch_size=batch), halves)
    assert plan is not None
    assert plan.by_warpgroups == (split > 0)
    if split:
        assert (plan.split, plan.ways) == (split, 1)


def test_a_plan_knows_the_hops_of_a_step() -> None:
    hops = [
        Plan(Problem(inputs=inputs, classes=10, hidden=hidden, batch_size=batch), split, ways=1).hops
        for hidden, batch, inputs, split in SIZES
    ]
    assert hops == [6, 4, 6, 6, 8, 10, 6, 6]


def test_a_stage_counts_the_hops_of_its_plan() -> None:
    def hops(*hidden: int, batch: int = 128) -> int:
        return STAGE.exchanges(Problem(784, 10, hidden, batch_size=batch), 100, 132, 0).cluster_hops

    assert hops() == 1
    assert hops(256) == 4
    assert hops(128, 128, 128, batch=32) == 6
    assert hops(256, 256, 256, batch=32) == 8


def test_matrices_hold_every_pixel_and_zeros() -> None:
    random = np.random.default_rng(0)
    batch = random.integers(0, 256, (20, 21)).astype(np.float32) / 256
    whole = matrices(HostDevice(), [batch], tiles=3)
    assert whole.shape == (1, 6, 4, 8, 8)
    for image, feature in np.ndindex(32, 48):
        at = (0, feature // 8, image // 8, image % 8, feature % 8)
        assert whole[at] == (batch[image, feature] if image < 20 and feature < 21 else 0)


def sections(plan: Plan) -> list[tuple[int, int]]:
    """Offset and size of whatever the kernel is told to keep in shared memory, as mlp_plan.cuh describes it."""
    _, depth, _, _, pairs, split, ways, tiles, _, even, odd, logits, *layers = plan.numbers([0] * 5, [0] * 5)
    matrix = 128 * plan.halves
    part = 2 * matrix  # of a chunk by sixteen images: two matrices, or numbers to be added up
    regions = [(even, tiles * pairs * 512), (odd, tiles * pairs * 512)]
    logits_bytes = 16 * part * 33 // 32 * -(-pairs // 8)
    below = 0
    for index in range(depth):
        _, slots, chunks, weights, outputs, biases, exchange, _, _ = layers[9 * index : 9 * index + 9]
        if index == 0:
            exchange_bytes = split * ways * slots * pairs * part
            regions += [(weights, tiles * slots * split * 512), (exchange, exchange_bytes)]
            if not plan.shares:
                regions.append((logits, logits_bytes))
            else:
                assert logits == exchange
                assert logits_bytes <= exchange_bytes
        else:
            regions += [(weights, below * chunks * (256 + matrix)), (exchange, chunks * pairs * part)]
        if index < depth - 1:
            assert chunks == 16 * slots
            regions += [(outputs, slots * pairs * part), (biases, slots * 32)]
        else:
            regions += [(biases, 64)]
        below = slots
    return sorted(regions)


def assert_nothing_lies_upon_anything_else(plan: Plan) -> None:
    end = 0
    for offset, size in sections(plan):
        assert offset == end
        assert offset % 16 == 0
        end += size
    numbers = plan.numbers([0] * 5, [0] * 5)
    assert end == plan.shared_bytes == numbers[0]
    assert len(numbers) == 12 + 9 * len(plan.problem.layers)
    for images in numbers[9:11]:
        assert images % 128 == 0, "copies from memory begin where lines do"


@pytest.mark.parametrize("halves", [EXACT, ROUNDED])
@pytest.mark.parametrize(("hidden", "batch", "inputs", "split"), SIZES, ids=str)
def test_nothing_lies_upon_anything_else(
    hidden: tuple[int, ...], batch: int, inputs: int, split: int, halves: int
) -> None:
    problem = Problem(inputs=inputs, classes=10, hidden=hidden, batch_size=batch)
    for plan in (Plan(problem, split, 2, halves), plan_for(problem, halves)):
        assert plan is not None
        assert_nothing_lies_upon_anything_else(plan)


@pytest.mark.parametrize("halves", [EXACT, ROUNDED])
def test_logits_share_memory_only_where_nothing_fits_otherwise(halves: int) -> None:
    gained = 0
    for depth, batch in itertools.product(range(1, 5), (1, 32, 64, 128)):
        for hidden in itertools.product((16, 128, 256, 400), repeat=depth):
            problem = Problem(inputs=784, classes=10, hidden=hidden, batch_size=batch)
            fitting = [plan for plan in plans(problem, halves) if plan.shared_bytes <= LIMIT]
            for plan in fitting:
                assert_nothing_lies_upon_anything_else(plan)
            alone = [plan for plan in fitting if not plan.shares]
            chosen = plan_for(problem, halves)
            if alone:
                assert chosen == min(alone, key=lambda plan: (not plan.by_warpgroups, plan.split))
            elif chosen is not None:
                assert chosen.can_share
                assert depth > 1
                gained += 1
    assert gained > 0


@pytest.mark.parametrize("split", [1, 2, 16])
def test_with_one_hidden_layer_logits_share_no_memory(split: int) -> None:
    problem = Problem(inputs=49, classes=10, hidden=(130,), batch_size=24)
    assert not Plan(problem, split, ways=1, shares=True).can_share


def test_a_network_fits_because_its_logits_have_no_memory_of_their_own() -> None:
    plan = plan_for(Problem(inputs=784, classes=10, hidden=(256, 256, 256), batch_size=32))
    assert plan is not None
    assert (plan.split, plan.ways, plan.shares) == (8, 1, True)
    assert plan.shared_bytes <= LIMIT < replace(plan, shares=False).shared_bytes


def test_the_kernel_s_own_plan_is_that_of_the_network_that_it_names() -> None:
    problem = Problem(inputs=784, classes=10, hidden=(128, 128, 128), batch_size=32)
    plan = plan_for(problem)
    assert plan is not None
    memory = ParameterMemory(HostDevice().empty, problem)
    (name, numbers), halves = plan.macros(memory.weight_begins, memory.bias_begins)
    text = (KERNELS / "cluster/mlp_plan.cuh").read_text()
    written = re.search(r"#ifndef PLAN .*\n#define PLAN([\s\d,\\]+)#endif", text)
    assert name == "PLAN"
    assert written is not None
    assert re.findall(r"\d+", written[1]) == numbers.split(",")
    assert "#define {} {}".format(*halves) in (KERNELS / "cluster/matrices.cuh").read_text()


def test_the_float16_rung_is_in_its_own_class() -> None:
    assert (FLOAT16.precision, STAGE.precision) == ("float16", "float32")
