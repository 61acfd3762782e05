"""Every stage that runs on a GPU, at sizes that no tile divides, against the oracle; and the harness's own fence."""

from __future__ import annotations

import gc
import time
from functools import partial

import numpy as np
import pytest

from common.data.dataset import Split
from common.errors import MisfitError
from common.oracle import Oracle
from common.problem import Params, Problem, initial_params
from common.trainer import Trainer
from ladder.machine.environment import missing
from ladder.measure.timing import timed_run
from stages.registry import Entry, load_all
from tests.stages.contract import trainer_contract
from tests.stages.engine.test_step import assert_first_updates, random_split

pytestmark = pytest.mark.gpu

# Those that compile for minutes are judged by the harness alone, by the same checks on the problem that is measured.
# Rungs on a CPU have tests of their own, and their threads would take the cores that compile kernels here.
STAGES = [
    entry
    for entry in load_all().values()
    if entry.stage.needs
    and "torch-cuda" not in entry.stage.needs
    and entry.stage.group != "cpu"
    and not entry.stage.is_fleet
    and not entry.stage.takes_gpus
]
RUNGS = [entry for entry in STAGES if entry.stage.recipe is not None]
SIZES = [((), 128), ((), 7), ((33,), 32), ((17, 5, 9), 31), ((256,), 128), ((64,), 1)]


def on_this_machine(entry: Entry) -> Entry:
    reason = missing(entry.stage.needs)
    if reason:
        pytest.skip(reason)
    return entry


def build(entry: Entry, problem: Problem, split: Split) -> Trainer:
    """The stage's trainer here; where a rung says that the problem does not fit it, it is right to refuse."""
    stage = on_this_machine(entry).stage
    try:
        return stage.build(problem, split)
    except MisfitError as error:
        if "Closest rung here: " in str(error):
            pytest.skip(str(error))
        raise


@pytest.mark.parametrize(("hidden", "batch"), SIZES, ids=str)
@pytest.mark.parametrize("entry", STAGES, ids=lambda entry: entry.stage.name)
def test_every_trainer_keeps_the_contract(entry: Entry, hidden: tuple[int, ...], batch: int) -> None:
    problem = Problem(inputs=49, classes=10, hidden=hidden, batch_size=batch, metrics_every=1)
    trainer_contract(entry.stage, problem, partial(build, entry))


@pytest.mark.parametrize("hidden", [(), (33,)], ids=str)
@pytest.mark.parametrize("entry", RUNGS, ids=lambda entry: entry.stage.name)
def test_a_trainer_keeps_all_the_memory_that_it_uses(entry: Entry, hidden: tuple[int, ...]) -> None:
    """A captured graph does not: it would go on with addresses that have long been someone else's."""
    import cupy

    problem = Problem(inputs=49, classes=10, hidden=hidden, batch_size=32, metrics_every=1)
    split = random_split(96, inputs=49, classes=10, seed=105)  # no output comes within 0.001 of its ReLU's corner
    trainer = build(entry, problem, split)
    gc.collect()
    cupy.get_default_memory_pool().free_all_blocks()
    others = [cupy.full(size, cupy.nan, cupy.float32) for size in (1 << 6, 1 << 9, 1 << 12, 1 << 15, 1 << 18) * 8]
    assert_first_updates(trainer, problem, split, entry.stage.precision)
    assert all(bool(cupy.isnan(other).all()) for other in others)


@pytest.mark.parametrize("entry", RUNGS, ids=lambda entry: entry.stage.name)
def test_extreme_logits_give_finite_updates(entry: Entry) -> None:
    problem = Problem(inputs=49, classes=10, batch_size=32, learning_rate=1.0)
    split = random_split(32, inputs=49, classes=10)
    drawn = initial_params(problem, 0)
    params = Params((drawn.weights[0] * np.float32(300),), drawn.biases)  # logits of about +-80 and beyond
    trainer = build(entry, problem, split)
    trainer.load_params(params)
    trainer.run_epoch(9)
    oracle = Oracle(problem, params)
    seen = oracle.run_epoch(split.images, split.labels)
    trained, metrics = trainer.read_params(), trainer.last_metrics()
    assert np.isfinite(trained.weights[0]).all()
    assert metrics is not None
    if entry.stage.precision == "float32":
        np.testing.assert_allclose(trained.weights[0], oracle.weights[0], rtol=1e-4, atol=1e-4)
        assert metrics.mean_loss == pytest.approx(seen.mean_loss, rel=1e-5)
    else:  # eight bits of a logit of 80 are off by 0.3, and so may the loss be
        assert metrics.mean_loss == pytest.approx(seen.mean_loss, rel=0.05)


@pytest.mark.alone
def test_the_fence_waits_for_work_on_any_stream() -> None:
    import cupy

    from common.cuda.clock import fence

    spin = cupy.RawKernel(
        """extern "C" __global__ void spin(long long cycles) {
            long long begin = clock64();
            while (clock64() - begin < cycles) {}
        }""",
        "spin",
    )
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(2)]

    class LeavesWorkOnSideStreams:
        device = "gpu"
        cuda_stream = None
        detail = ""

        def load_params(self, params: Params) -> None:
            pass

        def run_epoch(self, epoch: int) -> None:
            for stream in streams:
                with stream:
                    spin((1,), (1,), (100_000_000,))  # some 50 ms

        def last_metrics(self) -> None:
            return None

    spin((1,), (1,), (1,))
    trainer, params = LeavesWorkOnSideStreams(), Params((), ())
    run = timed_run(trainer, params, 1, fence=fence, clock=time.perf_counter)  # type: ignore[arg-type]
    assert run.seconds > 0.02
    assert all(stream.done for stream in streams)


@pytest.mark.alone
def test_events_and_the_host_s_clock_agree_on_a_long_run() -> None:
    from common.cuda.clock import EventPair, fence

    stage = on_this_machine(next(entry for entry in RUNGS if entry.stage.name == "async")).stage
    problem = Problem(inputs=49, classes=10, batch_size=8)
    trainer = stage.build(problem, random_split(8 * 2000, inputs=49, classes=10))
    assert trainer.cuda_stream is not None
    events = EventPair(trainer.cuda_stream)
    params = initial_params(problem, 0)
    timed_run(trainer, params, 1, fence=fence, clock=time.perf_counter)
    run = timed_run(trainer, params, 1, fence=fence, clock=time.perf_counter, events=events)
    assert run.gpu_seconds is not None
    assert run.gpu_seconds == pytest.approx(run.seconds, rel=0.05)
    assert run.gpu_seconds < run.seconds
