"""What grid-pairs-bf16 makes of a problem: groups of layers, their places, and what does not fit."""

from __future__ import annotations

import itertools

import pytest

from common.problem import Problem
from stages.persistent.grid_plan import ALL_PARTS, floats_of
from stages.persistent.pairs_plan import PairsPlan, make_plan
from tests.kernels.on_cpu import cases_of

H200 = 132, 227 << 10
# Inputs, hidden layers, classes, batch; then groups, barriers, steps of images at once, and slices of the first layer.
PLANS = [
    (212, (1588, 30), 7, 224, ((0, 1),), 2, 1, 1),
    (199, (1403, 50, 2704), 50, 65, ((0, 1), (2, 3)), 6, 2, 1),
    (173, (79, 2336, 34, 241), 39, 26, ((0,), (1, 2)), 5, 2, 1),
    (391, (39, 1189, 218, 168), 7, 92, ((0,), (1, 2)), 6, 2, 7),
]


def plan_of(problem: Problem) -> PairsPlan:
    begins = [0] * len(problem.layers)
    plan = make_plan(problem, 200, begins, begins, *H200)
    assert plan is not None
    return plan


@pytest.mark.parametrize(("inputs", "hidden", "classes", "batch", "groups", "barriers", "buffers", "slices"), PLANS)
def test_layers_are_grouped_and_everything_has_a_place_of_its_own(
    inputs: int,
    hidden: tuple[int, ...],
    classes: int,
    batch: int,
    groups: tuple[tuple[int, ...], ...],
    barriers: int,
    buffers: int,
    slices: int,
) -> None:
    plan = plan_of(Problem(inputs, classes, hidden, batch_size=batch))
    sizes = plan.sizes
    assert (plan.groups, plan.barriers, sizes.chunk, sizes.buffers) == (groups, barriers, sizes.rows, buffers)
    assert (sizes.wide, sizes.blocks, plan.shared_bytes <= H200[1]) == (groups[-1][-1] + 1, H200[0], True)
    kept = [(sizes.images_at, buffers * floats_of(sizes.rows, plan.layers[0].tile_k))]
    for index, layer in enumerate(plan.layers[: sizes.wide]):
        kept.append((layer.weight_at, floats_of(layer.tile_k, layer.tile_n, ALL_PARTS)))
        if layer.bias_at >= 0:
            kept.append((layer.bias_at, layer.tile_n))
        if layer.kept_at >= 0:  # an upper layer has its inputs from the lower one of the same block
            below = plan.layers[index - 1]
            assert (layer.tile_k, layer.slices, layer.columns) == (below.tile_n, below.columns, 1)
            kept += [(layer.kept_at, size := floats_of(sizes.rows, layer.tile_k))]
            assert sizes.dinputs_at + size <= sizes.images_at
        else:
            assert layer.slices * layer.tile_k >= layer.inputs
            assert (layer.slices, layer.bias_at >= 0) == ((1, True) if index else (slices, slices == 1))
    assert max(begin + size for begin, size in kept if begin < sizes.images_at) <= sizes.dinputs_at
    kept.sort()
    for (begin, size), (after, _) in itertools.pairwise([*kept, (sizes.inputs_at, 0)]):
        assert begin + size <= after
    for first, *_ in groups[1:]:
        assert sizes.inputs_at + floats_of(sizes.rows, plan.layers[first].tile_k) <= sizes.doutputs_at
    for *_, last in groups:
        assert 4 * (sizes.doutputs_at + floats_of(sizes.rows, plan.layers[last].tile_n)) <= plan.shared_bytes
    tail, last_wide = plan.layers[sizes.wide :], plan.layers[sizes.wide - 1]
    each = -(-batch // H200[0])
    sums = each * last_wide.columns * last_wide.tile_n
    rows = [(sizes.vectors_at, 2 * each * (sum(layer.inputs for layer in tail) + classes)), (sizes.scratch_at, 512)]
    rows += [(sizes.stash_at, sums), *((layer.weight_at, layer.inputs * layer.outputs) for layer in tail)]
    for (begin, size), (after, _) in itertools.pairwise([*rows, (plan.shared_bytes // 4, 0)]):
        assert begin + size <= after


def test_its_cases_have_groups_of_every_kind() -> None:
    plans = [case.besides["plan"] for case in cases_of("grid_pairs")]
    kinds = [(tuple(map(len, plan.groups)), plan.sizes.wide < len(plan.layers), plan.sizes.buffers) for plan in plans]
    assert kinds == [((2,), True, 2), ((2, 1, 2), False, 1), ((2,), True, 1), ((1, 2), False, 1), ((1, 2), False, 2)]
    assert [plan.layers[0].slices for plan in plans] == [1, 1, 1, 2, 1]
