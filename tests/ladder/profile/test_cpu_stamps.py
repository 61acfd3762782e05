"""Profiles of rungs on the CPU, by time stamps around their kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from common.cpu.host import Host
from common.data.dataset import Split
from common.problem import Problem, initial_params
from ladder.measure.profiled import Sample
from ladder.profile import cpu_stamps
from ladder.profile.summary import excerpt, summarise, with_bytes
from ladder.profile.trace import FROM_PYTHON, Call, Kernel, Trace, Window
from ladder.records.profile import Profile
from stages.classic.cuda_graph import GraphEpoch
from stages.cpu import cores, resident
from stages.engine.parts import OneByOne
from stages.registry import load_all

RUNGS = {
    name: entry.stage for name, entry in load_all().items() if entry.stage.group == "cpu" and not entry.stage.is_fleet
}
THREADED = {name for name, stage in RUNGS.items() if stage.recipe and stage.recipe.launch not in (OneByOne, GraphEpoch)}
STEPS, THREADS = 12, 2
KINDS = {"gemm", "layer", "softmax", "update", "copy"}


@pytest.fixture(autouse=True)
def threads(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (cores, resident):
        monkeypatch.setattr(module, "usable_cores", lambda: THREADS)


def problem_of(hidden: tuple[int, ...] = ()) -> Problem:
    return Problem(
        inputs=784, classes=10, hidden=hidden, batch_size=32, learning_rate=0.1, epochs=10, seed=1, metrics_every=5
    )


def trainer_of(name: str, problem: Problem) -> Any:
    random = np.random.default_rng(3)
    images = random.integers(0, 256, (STEPS * problem.batch_size, problem.inputs), np.uint8)
    labels = random.integers(0, problem.classes, len(images), np.uint8)
    trainer = RUNGS[name].build(problem, Split(images, labels))
    trainer.load_params(initial_params(problem, 1))
    return trainer


def traced(run_epoch: Callable[[int], None]) -> Trace:
    return cpu_stamps.record((3, 4), run_epoch, warm_up=True)


def profile_of(name: str, problem: Problem) -> tuple[Profile, Trace]:
    trace = traced(trainer_of(name, problem).run_epoch)
    lasted = [(window.end - window.start) / 1e3 / STEPS for window in trace.windows]
    return summarise(trace, (0.8, 0.2), STEPS, "stamps", 0.8 * lasted[0] + 0.2 * lasted[1]), trace


@pytest.mark.parametrize(
    ("name", "hidden"), [(name, ()) for name in RUNGS] + [(name, (48,)) for name in [*RUNGS][::2]], ids=str
)
def test_every_operation_of_a_step_is_seen_and_all_parts_add_up_to_it(name: str, hidden: tuple[int, ...]) -> None:
    problem = problem_of(hidden)
    if RUNGS[name].misfit(problem, STEPS):
        pytest.skip(f"{name}: does not take a hidden layer")
    profile, trace = profile_of(name, problem)
    assert profile.seen.total_us == pytest.approx(profile.plain_step_us, rel=1e-6)
    assert profile.split.total_us == pytest.approx(profile.plain_step_us, rel=1e-6)
    steady = summarise(Trace(trace.windows[:1], trace.kernels, [], trace.calls), (1.0,), STEPS, "stamps", 1.0)
    assert sum(kernel.us_per_step for kernel in steady.kernels) == pytest.approx(steady.seen.kernels_us, rel=1e-6)
    assert {kernel.kind for kernel in profile.kernels} <= KINDS
    assert {"gemm", "softmax"} <= {kernel.kind for kernel in profile.kernels}
    assert sum(kernel.kind == "gemm" for kernel in profile.kernels) >= 2 + 3 * len(hidden)  # some are in two parts
    assert [kernel.place for kernel in profile.kernels] == list(range(len(profile.kernels)))
    assert all(kernel.us_per_step > 0 for kernel in profile.kernels)
    assert profile.timeline
    assert all(span.row == "cpu" and span.duration_us >= 0 for span in profile.timeline)
    for window in trace.windows:  # the clock is Python's
        inside = [kernel for kernel in trace.kernels if window.start <= kernel.start < window.end]
        assert inside
        assert all(kernel.start <= kernel.end <= window.end for kernel in inside)
    recipe = RUNGS[name].recipe
    assert recipe is not None
    threads = THREADS if name in THREADED else 1
    calls = profile.kernels_per_step if recipe.launch is OneByOne else threads / STEPS
    assert profile.launches_per_step == pytest.approx(calls)
    assert profile.syncs_per_epoch == 0 or name in THREADED
    assert (profile.split.waiting_us > 0) == (name in THREADED)
    assert {span.thread for span in profile.timeline} == set(range(threads))
    if not hidden:
        assert profile.syncs_per_epoch == pytest.approx(2 * STEPS if name in THREADED else 0)


@pytest.mark.parametrize("name", ["cpu-fused-head", "cpu-one-call", "cpu-resident"])
def test_stamps_leave_the_training_as_it_is(name: str) -> None:
    problem = problem_of()
    plain, stamped = (trainer_of(name, problem) for _ in range(2))
    for epoch in (3, 3, 4):
        plain.run_epoch(epoch)
    traced(stamped.run_epoch)
    for one, other in zip(plain.read_params().weights, stamped.read_params().weights, strict=True):
        np.testing.assert_array_equal(one, other)
    assert Host.recording is None


def test_the_plain_rung_has_the_bytes_of_each_operation() -> None:
    problem = problem_of()
    profile, _ = profile_of("cpu-blas", problem)
    first = with_bytes(profile, problem).kernels[0]
    assert first.bytes == 4 * (32 * 784 + 784 * 10 + 32 * 10)


def test_epochs_that_last_long_are_profiled_once() -> None:
    both = Sample((8, 9), (0.9, 0.1))
    assert both.within(1.0, 0.4) == both
    assert both.within(1.0, 0.6) == Sample((8,), (1.0,))
    assert Sample((8, 9), (0.1, 0.9)).within(1.0, 0.6) == Sample((9,), (1.0,))


def test_the_excerpt_shows_steps_that_last_as_long_as_most() -> None:
    starts = [0, 10, 20, 30, 40, 50, 950, 960, 970, 980]  # other work interrupted the sixth step, in mid-epoch
    kernels = [Kernel("product", 1000 * at, 1000 * at + 8000, at) for at in starts]
    calls = [Call(FROM_PYTHON, kernel.start, kernel.end, kernel.correlation, 0) for kernel in kernels]
    epoch = Trace([Window(0, 0, 1_000_000)], kernels, [], calls)
    spans, length_us = excerpt(epoch, len(starts))
    assert length_us == pytest.approx(30)
    assert [span.row for span in spans] == ["cpu"] * 3
