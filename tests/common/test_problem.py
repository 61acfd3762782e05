"""The parameters that runs start from."""

from __future__ import annotations

import numpy as np

from common.problem import Problem, initial_params


def test_weights_are_uniform_and_biases_zero() -> None:
    params = initial_params(Problem(inputs=784, classes=10, hidden=(25,), seed=3), 7)
    for weight, fan_in in zip(params.weights, (784, 25), strict=True):
        bound = fan_in**-0.5
        assert weight.dtype == np.float32
        assert np.abs(weight).max() <= np.float32(bound)
        shares = np.histogram(weight, bins=5, range=(-bound, bound))[0] / weight.size
        assert np.abs(shares - 0.2).max() < 4 * (0.2 * 0.8 / weight.size) ** 0.5
    assert [bias.tolist() for bias in params.biases] == [[0.0] * 25, [0.0] * 10]


def test_every_run_and_every_seed_has_its_own() -> None:
    drawn = [
        initial_params(Problem(inputs=4, classes=2, seed=seed), run).weights[0].tobytes()
        for seed, run in [(0, 0), (0, 1), (1, 0), (0, 0)]
    ]
    assert len(set(drawn)) == 3
    assert drawn[0] == drawn[3]
