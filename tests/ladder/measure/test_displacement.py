"""How far a run came, and what is left of where it began."""

from __future__ import annotations

import math

import numpy as np
import pytest

from common.problem import Params, initial_params, zero_params
from ladder.measure.displacement import Trip
from ladder.measure.timing import Plan
from ladder.verify.gates import verify_timer, verify_trips
from ladder.verify.oracle_runs import OracleRun
from tests.ladder.harness import small_problem

PROBLEM = small_problem(hidden=(64,))
START, ELSEWHERE = initial_params(PROBLEM, 0), initial_params(PROBLEM, 1)


def trip(final: Params) -> Trip:
    return Trip.of(START, final.weights, final.biases)


def test_who_stays_keeps_all_and_who_began_elsewhere_next_to_nothing() -> None:
    assert trip(START).moved == 0.0
    assert trip(START).kept == pytest.approx(1.0)
    assert abs(trip(ELSEWHERE).kept) < 0.1
    assert Trip.of(zero_params(PROBLEM), START.weights, START.biases).kept == 0.0


def test_biases_count_for_the_distance() -> None:
    moved = Params(START.weights, tuple(bias + np.float32(0.5) for bias in START.biases))
    assert trip(moved).moved == pytest.approx(0.5 * math.sqrt(68))


@pytest.mark.parametrize(
    "other", [Params(START.weights[:1], START.biases[:1]), Params(START.weights[::-1], START.biases)]
)
def test_another_network_is_no_way(other: Params) -> None:
    assert math.isnan(trip(other).moved)


def test_what_is_no_number_fails() -> None:
    oracle = OracleRun(trips=[Trip(1.0, 1.0)])
    none = Trip(math.nan, math.nan)
    for trips in ({}, {0: none}, {0: Trip(0.0, 1.0)}, {0: Trip(1.0, math.nan)}):
        assert not all(check.passed for check in verify_trips(trips, Plan(1, 1, 0), oracle))
    assert not verify_trips({0: Trip(1.0, 1.0)}, Plan(1, 2, 0), oracle)[0].passed  # one of two is missing
    assert not verify_timer(math.nan).passed


def test_a_run_that_went_less_than_half_the_oracle_s_way_fails_and_a_little_chaos_passes() -> None:
    oracle = OracleRun(trips=[Trip(2.0, 1.1)])
    for seen, passes in ((Trip(1.9, 1.2), True), (Trip(0.9, 1.0), False), (Trip(2.0, 0.3), False)):
        assert verify_trips({0: seen}, Plan(1, 1, 0), oracle)[1].passed == passes
