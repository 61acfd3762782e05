"""What each rung claims about its launches, counted on the device."""

from __future__ import annotations

import pytest

from common.problem import Problem, initial_params
from ladder.environment import missing
from ladder.profile import cupti
from stages.registry import load_all
from stages.stage import Stage
from tests.stages.test_step import random_split

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not cupti.available(), reason="cupti-python is not installed"),
]

STEPS = 40
TOTALS = "softmax_xent_totals"


def epochs_of(name: str, epochs: range, hidden: tuple[int, ...] = ()) -> list[cupti.Trace]:
    """What each of these epochs does."""
    from common.cuda.clock import fence

    stage: Stage = load_all()[name].stage
    reason = missing(stage.needs)
    if reason:
        pytest.skip(reason)
    problem = Problem(inputs=49, classes=10, hidden=hidden, batch_size=8)
    trainer = stage.build(problem, random_split(STEPS * 8, inputs=49, classes=10))
    trainer.load_params(initial_params(problem, 0))
    return [cupti.trace(lambda epoch=epoch: trainer.run_epoch(epoch), fence) for epoch in epochs]  # type: ignore[misc]


def waits(seen: cupti.Trace) -> int:
    """Calls in which the host waits for the device, the harness's own fence left out."""
    return sum(n for name, n in seen.calls.items() if "Synchronize" in name and not name.startswith("cuCtx"))


def test_naive_waits_in_every_step_and_async_once_an_epoch() -> None:
    (naive,), (relaxed,) = epochs_of("naive", range(1)), epochs_of("async", range(1))
    assert naive.kernels == relaxed.kernels
    assert naive.kernels.total() == 8 * STEPS
    assert waits(naive) >= STEPS
    assert waits(relaxed) <= 2


def test_sparse_metrics_are_computed_in_every_tenth_epoch() -> None:
    seen = [trace.kernels[TOTALS] for trace in epochs_of("sparse-metrics", range(20))]
    assert seen == [STEPS if epoch in (9, 19) else 0 for epoch in range(20)]


def test_cudnn_takes_the_softmax() -> None:
    (below,), (seen,) = epochs_of("sparse-metrics", range(1)), epochs_of("cudnn-softmax", range(1))
    assert below.kernels["softmax"] == STEPS
    assert seen.kernels["softmax"] == 0
    assert sum(count for name, count in seen.kernels.items() if "softmax_fw" in name) == STEPS
    assert seen.kernels.total() == below.kernels.total()


@pytest.mark.parametrize("hidden", [(), (16, 16)], ids=str)
def test_a_graph_is_one_launch_of_the_same_kernels(hidden: tuple[int, ...]) -> None:
    for epoch in (0, 9):
        (eager,) = epochs_of("cudnn-softmax", range(epoch, epoch + 1), hidden)
        (graph,) = epochs_of("cuda-graph", range(epoch, epoch + 1), hidden)
        assert graph.kernels == eager.kernels
        assert graph.graph_launches == 1
        assert graph.launches == 1
        assert eager.graph_launches == 0
