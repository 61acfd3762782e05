"""What persistent-grid makes of a problem: the division among blocks, the schedule on several, and what fits."""

from __future__ import annotations

import itertools
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from common.cost import Exchanges
from common.problem import Problem
from stages import cuda_graph
from stages.grid_plan import GridPlan, make_plan, pitch_of
from stages.persistent_grid import STAGE
from tests.cpu_cuda.shim import KernelFault, Shim, Toolchain, requires_compiler
from tests.cpu_cuda.sources import KERNELS_FOLDER
from tests.kernels.cases import Case, all_cases

H200, SMALLEST = (132, 227 << 10), (14, 64 << 10)  # blocks, bytes of shared memory of each
MODELS = [((), 128), ((256,), 128), ((1024,), 128), ((128,) * 3, 32), ((784,) * 4, 64), ((4096,) * 3, 32), ((7,), 1)]


def plan_of(hidden: tuple[int, ...], batch: int, machine: tuple[int, int]) -> GridPlan:
    problem = Problem(inputs=784, classes=10, hidden=hidden, batch_size=batch)
    begins = [0] * len(problem.layers)
    plan = make_plan(problem, 468, begins, begins, *machine)
    assert plan is not None
    return plan


@pytest.mark.parametrize("machine", [H200, SMALLEST], ids=["H200", "smallest"])
@pytest.mark.parametrize(("hidden", "batch"), MODELS, ids=str)
def test_everything_has_a_place_of_its_own(hidden: tuple[int, ...], batch: int, machine: tuple[int, int]) -> None:
    plan = plan_of(hidden, batch, machine)
    sizes, (blocks, shared_bytes) = plan.sizes, machine
    assert plan.shared_bytes <= shared_bytes
    wide, tail = plan.layers[: sizes.wide], plan.layers[sizes.wide :]
    held, passing, rows = [(0, 4 * len(plan.numbers))], [], []
    for layer in wide:
        assert layer.slices * layer.tile_k >= layer.inputs > (layer.slices - 1) * layer.tile_k
        assert layer.columns * layer.tile_n >= layer.outputs > (layer.columns - 1) * layer.tile_n
        assert layer.tile_k % 8 == layer.tile_n % 8 == 0
        if sizes.held:
            assert layer.tiles <= blocks
            held.append((4 * layer.weight_at, 4 * layer.tile_k * layer.pitch))
    if sizes.held:
        held.append((4 * sizes.images_at, 4 * 2 * sizes.rows * pitch_of(wide[0].tile_k)))
    for layer in wide[1:] if sizes.held else wide:
        passing.append((4 * sizes.inputs_at, 4 * sizes.chunk * pitch_of(layer.tile_k)))
    spans = sorted(held)
    for (begin, size), (after, _) in itertools.pairwise(spans):
        assert begin + size <= after
    end_of_held = max(begin + size for begin, size in spans)
    assert end_of_held <= 4 * sizes.inputs_at
    for begin, size in passing:
        assert begin + size <= 4 * sizes.doutputs_at
    for layer in wide:
        assert 4 * (sizes.doutputs_at + sizes.chunk * pitch_of(layer.tile_n)) <= plan.shared_bytes
        if not sizes.held:
            assert 4 * (sizes.weights_at + layer.tile_k * layer.pitch) <= plan.shared_bytes
    rows = [(sizes.vectors_at, 2 * (sum(layer.inputs for layer in tail) + 10)), (sizes.scratch_at, 512)]
    rows += [(layer.weight_at, layer.inputs * layer.pitch) for layer in tail if layer.weight_at >= 0]
    for (begin, size), (after, _) in itertools.pairwise([*rows, (plan.shared_bytes // 4, 0)]):
        assert begin + size <= after


def test_one_hidden_layer_is_two_barriers_a_step_and_stays_on_the_chip() -> None:
    for hidden, batch in MODELS[:4]:
        plan = plan_of(hidden, batch, H200)
        assert (plan.sizes.wide, plan.sizes.held) == (1, 1)
        assert all(layer.weight_at > 0 for layer in plan.layers)
    deep = plan_of((784,) * 4, 64, H200)
    assert (deep.sizes.wide, deep.sizes.held) == (4, 1)


@requires_compiler
@pytest.mark.parametrize(
    ("file", "right", "wrong"),
    [
        ("persistent_grid.cu", "tail.run(step, with_totals);\n        barrier.pass();", "tail.run(step, with_totals);"),
        ("persistent_grid.cu", "        barrier.wait();\n        for", "        for"),
        ("persistent_grid.cu", "            barrier.wait();\n", ""),
        ("persistent_grid.cu", "if (step == sizes.steps) break;", "if (step == sizes.steps - 1) break;"),
        ("persistent_grid.cu", "wide.store_held();", ""),
        ("grid.cuh", "complete += gridDim.x;", "complete += 1;"),
        ("persistent_grid.cu", "add_up_backward(l);\n            barrier.pass();", "add_up_backward(l);"),
        ("tile_product.cuh", "c[i][3] += lower * second;", "c[i][3] += upper * second;"),
        ("wide_layers.cuh", "step % 2 *", "0 *"),
        ("wide_layers.cuh", "weight[1] -= rate * b", "weight[1] -= rate * 1.001f * b"),
        ("wide_layers.cuh", "output <= 0.0f ? 0.0f : sum;", "sum;"),
        ("wide_layers.cuh", "task < (down + 1) * across", "task < down * across"),
        ("row_tail.cuh", "row, col, inputs[col] <= 0.0f ? 0.0f : sum", "row, col, sum"),
        ("row_tail.cuh", "row, col, sum < 0.0f ? 0.0f : sum);", "row, col, sum);"),
        ("row_tail.cuh", "is_hidden && sum.y < 0.0f ? 0.0f : sum.y", "sum.y"),
        ("row_tail.cuh", "k, inputs[k] <= 0.0f ? 0.0f : sum", "k, sum"),
        ("row_tail.cuh", "row += gridDim.x", "row += gridDim.x + 1"),
        ("row_tail.cuh", "own + begin - length;", "own + begin - length + 1;"),
        ("row_tail.cuh", "i < count; i += 4 * THREADS", "i < count - 4; i += 4 * THREADS"),
        ("row_tail.cuh", "logf(sum) + ", ""),
    ],
)
def test_a_schedule_made_wrong_is_caught(
    file: str, right: str, wrong: str, tmp_path: Path, toolchain: Toolchain
) -> None:
    folder = tmp_path / "kernels"
    shutil.copytree(KERNELS_FOLDER, folder)
    text = (folder / file).read_text()
    assert text.count(right) == 1
    (folder / file).write_text(text.replace(right, wrong))
    shim = Shim([folder / "persistent_grid.cu"], toolchain)

    def is_right(case: Case) -> bool:
        args = case.copy_args()
        try:
            shim.launch(case.kernel, case.grid, case.block, *args.values(), seed=1, limit_s=20, **case.how)
        except KernelFault:
            return False
        return case.mismatch(args) == ""

    assert not all(is_right(case) for case in all_cases("persistent_grid", np.random.default_rng(0)))


def test_the_floor_knows_the_barriers_of_a_step() -> None:
    multiprocessors, shared_bytes = H200
    for hidden, batch, barriers in (((), 128, 2), ((256,), 128, 2), ((784,) * 4, 64, 14)):
        problem = Problem(784, 10, hidden, batch_size=batch)
        assert STAGE.exchanges(problem, 100, multiprocessors, shared_bytes) == Exchanges(grid_barriers=barriers)
        assert STAGE.exchanges(problem, 100, multiprocessors, 0).grid_barriers == 2
    assert cuda_graph.STAGE.exchanges(problem, 100, multiprocessors, shared_bytes) == Exchanges()


def test_what_does_not_fit_is_told() -> None:
    assert STAGE.misfit(Problem(inputs=784, classes=10, hidden=(784,) * 4), 468) is None
    told = STAGE.misfit(Problem(inputs=784, classes=10, hidden=(50_000,)), 468)
    assert told == "a row of 50,000 and 10 units takes more than 64 KiB of shared memory; try cuda-graph"
    told = STAGE.misfit(replace(Problem(inputs=784, classes=10), batch_size=1 << 20), 2)
    assert told is not None
    assert told.endswith("its memory reaches 1,073,741,824 numbers; try cuda-graph")
