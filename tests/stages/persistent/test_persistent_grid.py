"""What persistent-grid makes of a problem: the division among blocks, the schedule on several, and what fits."""

from __future__ import annotations

import itertools

import pytest

from common.cost import Exchanges
from common.problem import Problem
from stages.classic import cuda_graph
from stages.persistent import grid_bf16
from stages.persistent.grid_plan import ALL_PARTS, GridPlan, floats_of, make_plan
from stages.persistent.persistent_grid import STAGE
from tests.cpu_cuda.shim import Shim, requires_compiler
from tests.kernels.on_cpu import cases_of, fault

# Blocks, bytes of shared memory of each, and rows at once.
H200, SMALLEST, HALF = (132, 227 << 10, ()), (14, 64 << 10, ()), (66, 227 << 10, (64, 32))
Machine = tuple[int, int, tuple[int, ...]]
MODELS = [((), 128), ((256,), 128), ((1024,), 128), ((128,) * 3, 32), ((784,) * 4, 64), ((4096,) * 3, 32), ((7,), 1)]


def plan_of(hidden: tuple[int, ...], batch: int, machine: Machine, parts: int = ALL_PARTS) -> GridPlan:
    problem = Problem(inputs=784, classes=10, hidden=hidden, batch_size=batch)
    begins = [0] * len(problem.layers)
    blocks, shared_bytes, chunks = machine
    plan = make_plan(problem, 468, begins, begins, blocks, shared_bytes, parts, chunks)
    assert plan is not None
    return plan


@pytest.mark.parametrize("parts", [1, ALL_PARTS])
@pytest.mark.parametrize("machine", [H200, SMALLEST, HALF], ids=["H200", "smallest", "half"])
@pytest.mark.parametrize(("hidden", "batch"), MODELS, ids=str)
def test_everything_has_a_place_of_its_own(hidden: tuple[int, ...], batch: int, machine: Machine, parts: int) -> None:
    plan = plan_of(hidden, batch, machine, parts)
    sizes, (blocks, shared_bytes, _) = plan.sizes, machine
    assert plan.shared_bytes <= shared_bytes
    wide, tail = plan.layers[: sizes.wide], plan.layers[sizes.wide :]
    held, passing = [], []
    for index, layer in enumerate(wide):
        assert layer.slices * layer.tile_k >= layer.inputs > (layer.slices - 1) * layer.tile_k
        assert layer.columns * layer.tile_n >= layer.outputs > (layer.columns - 1) * layer.tile_n
        assert layer.tile_k % 16 == layer.tile_n % (16 if index else 8) == 0
        if sizes.held:
            assert layer.tiles <= blocks
            held.append((layer.weight_at, floats_of(layer.tile_k, layer.tile_n, ALL_PARTS)))
        elif index == 0:
            passing.append(floats_of(sizes.chunk, layer.tile_k))
        if index:
            passing.append(floats_of(sizes.chunk, layer.tile_k, parts))
    if sizes.held:
        held.append((sizes.images_at, 2 * floats_of(sizes.rows, wide[0].tile_k)))
    held.sort()
    for (begin, size), (after, _) in itertools.pairwise([*held, (sizes.inputs_at, 0)]):
        assert begin + size <= after
    assert all(sizes.inputs_at + size <= sizes.doutputs_at for size in passing)
    for layer in wide:
        end = sizes.doutputs_at + floats_of(sizes.chunk, layer.tile_n, parts)
        if not sizes.held:
            assert end <= sizes.weights_at
            end = sizes.weights_at + floats_of(layer.tile_k, layer.tile_n, parts)
        assert 4 * end <= plan.shared_bytes
    rows = [(sizes.vectors_at, 2 * (sum(layer.inputs for layer in tail) + 10)), (sizes.scratch_at, 512)]
    rows += [(layer.weight_at, layer.inputs * layer.outputs) for layer in tail if layer.weight_at >= 0]
    for (begin, size), (after, _) in itertools.pairwise([*rows, (plan.shared_bytes // 4, 0)]):
        assert begin + size <= after
    # What memory brings at once, 32 bytes, is written at once, if it begins at as many and so does every row of a tile.
    copied_to = [sizes.images_at, sizes.inputs_at, *(layer.weight_at for layer in tail if layer.weight_at >= 0)]
    copied_to += [floats_of(1, layer.tile_k) for layer in wide]
    assert [4 * place % 32 for place in copied_to] == [0] * len(copied_to)


def test_one_hidden_layer_is_two_barriers_a_step_and_stays_on_the_chip() -> None:
    for hidden, batch in MODELS[:4]:
        plan = plan_of(hidden, batch, H200)
        assert (plan.sizes.wide, plan.sizes.held) == (1, 1)
        assert all(layer.weight_at >= 0 for layer in plan.layers)
    for parts in (1, ALL_PARTS):
        deep = plan_of((784,) * 4, 64, H200, parts)
        assert (deep.sizes.wide, deep.sizes.held) == (4, 1)


def test_a_batch_comes_in_chunks_where_only_they_leave_room_for_the_weights() -> None:
    for hidden, batch, chunk in (((512,), 128, 128), ((1024,), 128, 64), ((128,) * 3, 32, 32)):
        plan = plan_of(hidden, batch, HALF)
        assert (plan.sizes.wide, plan.sizes.held, plan.sizes.chunk) == (1, 1, chunk)
    assert plan_of((784,) * 4, 64, HALF).sizes.held == plan_of((1024,), 128, (66, 227 << 10, ())).sizes.held == 0


@requires_compiler
def test_multiply_adds_do_what_tensor_cores_do(shim: Shim) -> None:
    for at in (2, 7, 9):  # with held tiles, with several wide layers, in bfloat16
        assert fault(shim, cases_of("persistent_grid")[at], more=(("WITHOUT_TENSOR_CORES", "1"),)) == ""


def test_the_floor_knows_the_barriers_of_a_step() -> None:
    multiprocessors, shared_bytes, _ = H200
    for hidden, batch, barriers in (((), 128, 2), ((256,), 128, 2), ((784,) * 4, 64, 14)):
        problem = Problem(784, 10, hidden, batch_size=batch)
        assert STAGE.exchanges(problem, 100, multiprocessors, shared_bytes) == Exchanges(grid_barriers=barriers)
        assert STAGE.exchanges(problem, 100, multiprocessors, 0).grid_barriers == 2
    assert cuda_graph.STAGE.exchanges(problem, 100, multiprocessors, shared_bytes) == Exchanges()


def test_the_rung_in_bfloat16_is_in_its_class_and_takes_one_part() -> None:
    assert (STAGE.precision, grid_bf16.STAGE.precision) == ("float32", "bfloat16")
    assert grid_bf16.BFloat16GridEpoch.parts == 1
    assert "sm_80" in grid_bf16.STAGE.needs
