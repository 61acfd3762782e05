"""Displacement: the distance of a run and the share of the initial weights that remains, summed by chunks."""

from __future__ import annotations

import math

import numpy as np
import pytest

from common.problem import Params, initial_params, zero_params
from ladder.measure import displacement as module
from ladder.measure.displacement import Displacement, in_chunks
from ladder.measure.timing import Plan
from ladder.verify.gates import verify_displacements, verify_timer
from ladder.verify.oracle_runs import OracleRun
from tests.ladder.harness import small_problem

PROBLEM = small_problem(hidden=(64,))
START, ELSEWHERE = initial_params(PROBLEM, 0), initial_params(PROBLEM, 1)


def displacement(final: Params) -> Displacement:
    return Displacement.of(START, final.weights, final.biases)


def test_a_still_run_retains_all_and_other_initial_weights_almost_nothing() -> None:
    assert displacement(START).distance == 0.0
    assert displacement(START).retained == pytest.approx(1.0)
    assert abs(displacement(ELSEWHERE).retained) < 0.1
    assert Displacement.of(zero_params(PROBLEM), START.weights, START.biases).retained == 0.0


def test_biases_count_in_the_distance() -> None:
    moved = Params(START.weights, tuple(bias + np.float32(0.5) for bias in START.biases))
    assert displacement(moved).distance == pytest.approx(0.5 * math.sqrt(68))


@pytest.mark.parametrize(
    "other", [Params(START.weights[:1], START.biases[:1]), Params(START.weights[::-1], START.biases)]
)
def test_another_networks_shapes_give_nan(other: Params) -> None:
    assert math.isnan(displacement(other).distance)


def test_a_displacement_that_is_nan_fails() -> None:
    oracle = OracleRun(displacements=[Displacement(1.0, 1.0)])
    none = Displacement(math.nan, math.nan)
    for displacements in ({}, {0: none}, {0: Displacement(0.0, 1.0)}, {0: Displacement(1.0, math.nan)}):
        assert not all(check.passed for check in verify_displacements("float32", displacements, Plan(1, 1, 0), oracle))
    assert not verify_displacements("float32", {0: Displacement(1.0, 1.0)}, Plan(1, 2, 0), oracle)[
        0
    ].passed  # one of two is missing
    assert not verify_timer(math.nan).passed
    assert [verify_timer(0.3, run_s).passed for run_s in (0.0, 0.01, 1.0)] == [True, True, False]


def test_a_run_of_less_than_half_the_oracles_distance_fails_and_small_differences_pass() -> None:
    oracle = OracleRun(displacements=[Displacement(2.0, 1.1)])
    for seen, passes in (((1.9, 1.2), True), ((0.9, 1.0), False), ((2.0, 0.3), False)):
        assert verify_displacements("float32", {0: Displacement(*seen)}, Plan(1, 1, 0), oracle)[1].passed == passes


@pytest.mark.parametrize("shape", [(0,), (1,), (7, 11), (7, 10), (140,)])
def test_every_element_occurs_once_and_in_order(shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHUNK_ELEMENTS", 70)
    numbers = np.arange(math.prod(shape), dtype=np.float32).reshape(shape)
    halves = np.asfortranarray(numbers / 2)  # another memory order
    found = list(in_chunks(numbers, halves))
    assert all(one.dtype == other.dtype == np.float64 and one.size == other.size <= 70 for one, other in found)
    one, other = (np.concatenate([np.empty(0), *sides]) for sides in (zip(*found, strict=True) if found else ([], [])))
    assert one.tolist() == numbers.ravel().tolist()
    assert (2 * other).tolist() == one.tolist()


def test_nan_and_infinity_are_kept() -> None:
    ((chunk,),) = in_chunks(np.array([1, np.nan, np.inf], np.float32))
    assert chunk.tolist() == pytest.approx([1, np.nan, np.inf], nan_ok=True)
