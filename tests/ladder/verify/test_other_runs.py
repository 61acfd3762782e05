"""Every timed run has to arrive, and to take its time by another clock than the stage's process has."""

from __future__ import annotations

import math

import pytest
from msgspec.structs import replace

from common.problem import Problem, initial_params
from ladder.measure.displacement import Displacement
from ladder.records.run import Process
from ladder.verify.other_runs import WAY_CHECK, RunEnd, verify_clock, verify_judged_time, verify_losses
from tests.ladder.harness import small_dataset, small_problem


def process(*runs_s: float, warmups_s: tuple[float, ...] = (0.5,), gpu_runs_s: list[float] | None = None) -> Process:
    return Process(
        round=0, prepare_s=0.0, warmups_s=list(warmups_s), runs_s=list(runs_s), gpu_runs_s=gpu_runs_s, gpu_states=[]
    )


def arrived(share: float, way: float = 1.0) -> RunEnd:
    """A run that wins this share of a loss of 2, and goes so far."""
    return RunEnd(Displacement(way, 0.0), 2.3, 2.3 - 2.0 * share)


@pytest.mark.parametrize(
    ("others", "passes"),
    [
        ((1.0,), True),
        ((0.7, 1.1), True),
        ((0.0, 0.9, 1.0), True),
        ((0.0,), False),
        ((0.0, 0.0, 1.0), False),
        ((0.3, 0.4), False),
        ((math.nan,) * 2, False),
    ],
)
def test_the_median_run_wins_as_much_as_the_judged_one(others: tuple[float, ...], passes: bool) -> None:
    check, way = verify_losses(Problem(784, 10), arrived(1.0), [arrived(share) for share in others])
    assert (check.passed, way.passed) == (passes, True)


@pytest.mark.parametrize(
    ("hidden", "ways", "passes"),
    [
        ((), (0.9, 1.2), True),
        ((), (1.0, 0.62), False),
        ((), (1.0, math.nan), False),
        ((64,), (0.5,), None),
    ],
)
def test_no_run_of_softmax_regression_goes_a_far_shorter_way(
    hidden: tuple[int, ...], ways: tuple[float, ...], passes: bool | None
) -> None:
    checks = verify_losses(Problem(784, 10, hidden=hidden), arrived(1.0), [arrived(1.0, way) for way in ways])
    assert [one.passed for one in checks if one.what == WAY_CHECK] == ([] if passes is None else [passes])


def test_where_correct_runs_differ_no_loss_is_judged() -> None:
    for problem in (Problem(784, 10, hidden=(8,)), Problem(784, 10, hidden=(128,) * 4)):  # narrow, deep
        assert verify_losses(problem, arrived(1.0), [arrived(0.0)]) == []
    for layers, least in ((0, 0.3), (1, 0.3), (2, 0.6), (3, 0.6)):
        problem = Problem(784, 10, hidden=(64,) * layers)
        assert verify_losses(problem, arrived((least - 0.01) * 2.3 / 2.0), [arrived(0.0)]) == []
        assert (
            len(verify_losses(problem, arrived((least + 0.01) * 2.3 / 2.0), [arrived(0.0)])) == 1 + problem.is_logistic
        )
    assert verify_losses(Problem(784, 10), arrived(1.0), []) == []


def test_the_loss_is_the_harnesss_own() -> None:
    problem, data = small_problem(), small_dataset()
    end = RunEnd.of(initial_params(problem, 0), initial_params(problem, 1), data.test)
    assert 1.0 < end.before < 3.0
    assert end.won == end.before - end.after != 0.0


@pytest.mark.parametrize(
    ("told", "seen", "passes"),
    [
        ((1.0, 1.0, 1.0), (0.5, 1.0, 1.0, 1.0), True),
        ((1.0, 1.0, 1.0), (0.5, 1.1, 1.0, 9.0), True),  # the host was late once
        ((0.1, 0.1, 0.1), (0.5, 1.0, 1.0, 1.0), False),
        ((0.95, 0.95, 0.95), (0.5, 1.0, 1.0, 1.0), True),
        ((0.8, 0.8, 0.8), (0.5, 1.0, 1.0, 1.0), False),  # a clock that is 20 % slow
        ((0.001,) * 3, (0.5, 0.004, 0.004, 0.004), True),  # too short to tell
        ((1.0, 1.0, 0.0), (0.5, 1.0, 1.0, 1.0), False),
        ((1.0, 1.0, -1.0), (0.5, 1.0, 1.0, 1.0), False),
        ((1.0, 1.0, math.nan), (0.5, 1.0, 1.0, 1.0), False),
        ((1.0, 1.0, 1.0), (0.5, 1.0, 1.0), False),
        ((1.0, 1.0, 1.0), (None,) * 4, True),  # a kernel without such times
    ],
)
def test_times_are_those_of_linux(told: tuple[float, ...], seen: tuple[float | None, ...], passes: bool) -> None:
    assert verify_clock(process(*told), seen).passed == passes


@pytest.mark.parametrize(("took_s", "passes"), [(0.0, True), (-0.001, True), (-0.3, False)])
def test_no_phase_ends_before_it_begins(took_s: float, passes: bool) -> None:
    told = replace(process(1.0), took_s={"load": 0.5, "prepare": took_s})
    assert verify_clock(told, (0.5, 1.0)).passed is passes
    for gpu_s in (0.9, 0.0):
        assert verify_clock(process(1.0, gpu_runs_s=[gpu_s]), (0.5, 1.0)).passed is (gpu_s > 0)


@pytest.mark.parametrize(("judged_s", "passes"), [(1.0, True), (0.3, True), (0.2, False), (5.0, True)])
def test_the_judged_run_is_not_the_only_short_one(judged_s: float, passes: bool) -> None:
    assert verify_judged_time(process(1.0, judged_s, 1.0), judged=1).passed == passes


def test_a_run_alone_is_compared_with_none_and_says_so() -> None:
    check = verify_judged_time(process(1.0, warmups_s=()), judged=0)
    assert (check.passed, check.judged, check.is_undecided) == (True, False, False)
    assert check.note == "a process has one run and no warm-up (--repeats, --warmups, --budget)"
