"""The parameters that runs start from."""

from __future__ import annotations

import numpy as np
import pytest

from common import problem as problems
from common.problem import Problem, initial_params


@pytest.mark.parametrize("at_once", [1, 70, 1 << 14])
def test_weights_are_uniform_and_the_same_however_many_are_drawn_at_once(
    at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = Problem(inputs=49, classes=10, hidden=(25,), seed=3)
    monkeypatch.setattr(problems, "DRAWN_AT_ONCE", at_once)
    params, random = initial_params(problem, 7), np.random.default_rng((3, 7))
    for weight, fan_in, fan_out in zip(params.weights, (49, 25), (25, 10), strict=True):
        drawn = random.uniform(-1.0 / np.sqrt(fan_in), 1.0 / np.sqrt(fan_in), (fan_in, fan_out))
        assert weight.tobytes() == drawn.astype(np.float32).tobytes()
    assert [bias.tolist() for bias in params.biases] == [[0.0] * 25, [0.0] * 10]


def test_every_run_and_every_seed_has_its_own() -> None:
    drawn = [
        initial_params(Problem(inputs=4, classes=2, seed=seed), run).weights[0].tobytes()
        for seed, run in [(0, 0), (0, 1), (1, 0), (0, 0)]
    ]
    assert len(set(drawn)) == 3
    assert drawn[0] == drawn[3]
