"""The model of expected times: what the tool writes, and what it says of networks that it was not fitted to."""

from __future__ import annotations

from collections import Counter

import msgspec
import numpy as np
import pytest

from common.problem import Problem
from ladder.run.expected import RANGED, Costs, expectations, recorded_costs
from tools.fit_costs import (
    PAGE,
    Points,
    fitted_costs,
    is_alike,
    networks_of,
    nine_in_ten,
    smallest_log_errors,
    verdicts,
    with_errors,
)


@pytest.fixture(scope="module")
def fit() -> tuple[Costs, Points]:
    return fitted_costs()


def test_the_file_is_what_the_recorded_runs_give(fit: tuple[Costs, Points]) -> None:
    found, kept = (msgspec.to_builtins(one) for one in (fit[0], recorded_costs()))
    rungs, kept_rungs = found.pop("rungs"), kept.pop("rungs")
    assert (found, list(rungs)) == (kept, list(kept_rungs)), "run python -m tools.fit_costs"
    for name, rung in rungs.items():
        assert rung.pop("us") == pytest.approx(kept_rungs[name].pop("us"), rel=0.01, abs=2e-4)
        for error in ("error", "median", "most", "again"):
            assert rung.pop(error) == pytest.approx(kept_rungs[name].pop(error), abs=2e-3)
        assert rung == kept_rungs[name]


def test_planted_terms_are_found_and_one_that_costs_nothing_is_0() -> None:
    random = np.random.default_rng(1)
    sizes = np.column_stack([np.ones(40), *(10 ** random.uniform(-1, 3, 40) for _ in range(3))])
    planted = np.array([12.0, 3.0, 0.25, 0.0])
    assert smallest_log_errors(sizes, sizes @ planted) == pytest.approx(planted, abs=1e-6)
    noisy = smallest_log_errors(sizes, sizes @ planted * np.exp(random.normal(0, 0.1, 40)))
    assert noisy == pytest.approx(planted, rel=0.15, abs=0.05)


def test_nine_in_ten_of_one_more_network_stay_below_the_error_that_is_told() -> None:
    assert [nine_in_ten(list(range(count, 0, -1))) for count in (1, 8, RANGED, 18, 19, 28, 29)] == [
        1,
        8,
        9,
        18,
        18,
        27,
        27,
    ]
    random = np.random.default_rng(2)
    for count in (RANGED, 20, 35):
        draws = random.exponential(size=(4000, count + 1))
        assert np.mean([last <= nine_in_ten(list(errors)) for *errors, last in draws]) == pytest.approx(0.91, abs=0.02)


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        (Problem(784, 10, (256,)), Problem(784, 10, (256,), 192), True),
        (Problem(784, 10, (256,)), Problem(784, 10, (256,), 256), False),
        (Problem(784, 10, (256,)), Problem(200, 10, (256,)), False),
        (Problem(784, 10, (256,) * 7), Problem(784, 10, (256,) * 8), True),
        (Problem(784, 10, (256,)), Problem(784, 10, (512,)), False),
        (Problem(784, 10), Problem(784, 10, (8,)), False),  # two layers, not one
    ],
)
def test_networks_alike_are_left_out_together(one: Problem, other: Problem, alike: bool) -> None:
    assert is_alike(one, other) == is_alike(other, one) == alike


def test_no_remark_on_a_network_left_out_is_wrong(fit: tuple[Costs, Points]) -> None:
    model, points = fit
    found = Counter(verdict for network in networks_of(points) for verdict in verdicts(model, points, network))
    assert found["right"] > found["wrong"] == 0
    text = PAGE.read_text(encoding="utf-8")
    assert with_errors(text, model, points) == text, "run python -m tools.fit_costs"


@pytest.mark.parametrize(
    ("network", "rung", "other", "measured", "told"),
    [
        (Problem(784, 10, (512, 512), 256), "last-layer", "streamed", 56.9 / 53.1, False),  # 7 %, within the error
        (Problem(784, 10, (), 1000), "persistent-grid", "cuda-graph", 45.9 / 28.1, True),
    ],
)
def test_it_foretells_losses_that_it_was_not_fitted_to(
    fit: tuple[Costs, Points], network: Problem, rung: str, other: str, measured: float, told: bool
) -> None:
    assert network not in networks_of(fit[1])
    found = expectations(network, network.steps(60_000))
    assert measured > 1.05
    assert found[rung].us > found[other].us
    assert bool(found[rung].remark) == told
