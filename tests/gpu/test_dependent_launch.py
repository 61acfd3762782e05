"""Programmatic dependent launch on a GPU: which edges the graph has, and that results are those of the rung below."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from common.problem import Problem, initial_params
from ladder.machine.environment import missing
from stages.engine.step import RecipeTrainer
from stages.engine.workspace import KERNELS
from stages.registry import load_all
from tests.stages.engine.test_step import random_split

pytestmark = pytest.mark.gpu

RUNG = load_all()["dependent-launch"].stage
BELOW = load_all()["fused-bias"].stage
EPOCHS = 3  # the first with totals
STEPS = 60


@pytest.fixture(autouse=True)
def gpu_with_dependents() -> None:
    if reason := missing(RUNG.needs):
        pytest.skip(reason)


def edges_of(stream: int) -> Counter[str]:
    """The edges of the graph that is being captured, by their types."""
    from cuda.bindings import driver

    def call(name: str, *arguments: Any) -> tuple[Any, ...]:
        # CUDA 12 has functions of that name without edges' data, and those with it under another one.
        for suffix in ("_v3", "_v2", ""):
            if function := getattr(driver, name + suffix, None):
                status, *found = function(*arguments)
                assert status == driver.CUresult.CUDA_SUCCESS, name
                return tuple(found)
        raise AttributeError(name)

    graph = call("cuStreamGetCaptureInfo", stream)[2]
    count = call("cuGraphGetEdges", graph)[-1]
    _, _, data, _ = call("cuGraphGetEdges", graph, count)
    programmatic = driver.CUgraphDependencyType.CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC
    return Counter("programmatic" if edge.type == int(programmatic) else "ordinary" for edge in data)


def captured(gpu: Any, enqueue: Callable[[], None]) -> tuple[Counter[str], Callable[[], None]]:
    found: list[Counter[str]] = []

    def enqueue_and_look() -> None:
        enqueue()
        found.append(edges_of(gpu.stream_handle))

    replay = gpu.capture(enqueue_and_look)
    return found[0], replay


def test_edges_between_two_of_ours_are_programmatic_and_all_others_are_not() -> None:
    from common.cuda.gpu import Gpu

    gpu = Gpu()
    array = gpu.upload(np.zeros((64, 33), np.float32))
    bias = gpu.upload(np.ones(33, np.float32))
    add_bias, sgd_update = (
        gpu.kernel(KERNELS / "plain/layer.cu", "add_bias"),
        gpu.kernel(KERNELS / "plain/sgd.cu", "sgd_update"),
    )

    def add() -> None:
        add_bias(9, 256, array, bias, np.int32(64), np.int32(33))

    def chain() -> None:
        for _ in range(5):
            add()

    def broken_by_a_fill() -> None:
        add()
        gpu.zero(array)
        add()
        add()

    def broken_by_one_that_does_not_wait() -> None:
        add()
        sgd_update(1, 32, array, bias, np.float32(0), np.int32(33))
        add()
        add()

    add()
    sgd_update(1, 32, array, bias, np.float32(0), np.int32(33))
    assert captured(gpu, chain)[0] == {"ordinary": 4}
    with gpu.dependent():
        add()
        edges, replay = captured(gpu, chain)
        filled, replay_filled = captured(gpu, broken_by_a_fill)
        mixed, _ = captured(gpu, broken_by_one_that_does_not_wait)
    assert edges == {"programmatic": 4}
    assert filled == {"ordinary": 2, "programmatic": 1}
    assert mixed == {"ordinary": 2, "programmatic": 1}
    gpu.zero(array)
    replay()
    assert (gpu.download(array) == 5).all()
    replay_filled()
    assert (gpu.download(array) == 2).all()


def final_bits(trainer: RecipeTrainer, problem: Problem, run: int) -> tuple[list[bytes], list[Any]]:
    trainer.load_params(initial_params(problem, run))
    metrics = []
    for epoch in range(EPOCHS):
        trainer.run_epoch(epoch)
        metrics.append(trainer.last_metrics())
    return [tensor.tobytes() for tensor in trainer.read_params().tensors().values()], metrics


@pytest.mark.parametrize(
    ("hidden", "batch"), [((), 128), ((256,), 128), ((128, 128, 128), 32), ((33, 17), 31)], ids=str
)
def test_results_are_those_of_the_rung_below_bit_for_bit(hidden: tuple[int, ...], batch: int) -> None:
    from common.cuda.gpu import Gpu

    problem = Problem(784, 10, hidden=hidden, batch_size=batch, epochs=EPOCHS, metrics_every=2)
    split = random_split(batch * STEPS, inputs=784, classes=10)
    assert RUNG.recipe is not None
    assert BELOW.recipe is not None
    below = RecipeTrainer(BELOW.recipe, problem, split, Gpu())
    gpu = Gpu()
    edges: list[Counter[str]] = []
    plain_capture = gpu.capture

    def capture(enqueue: Callable[[], None]) -> Callable[[], None]:
        def enqueue_and_look() -> None:
            enqueue()
            edges.append(edges_of(gpu.stream_handle))

        return plain_capture(enqueue_and_look)

    gpu.capture = capture  # type: ignore[method-assign]
    rung = RecipeTrainer(RUNG.recipe, problem, split, gpu)
    print(f"784-{hidden}-10, {batch}: {[dict(found) for found in edges]}")  # noqa: T201
    for run in range(3):
        assert final_bits(rung, problem, run) == final_bits(below, problem, run)
    assert all(found["programmatic"] >= STEPS for found in edges[-2:])  # from the head to the next, at the least
