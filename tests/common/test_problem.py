"""The parameters that runs start from."""

from __future__ import annotations

import numpy as np
import pytest

from common import arrays
from common.errors import UsageError
from common.problem import Problem, initial_params, network_run


def test_weights_are_uniform_and_biases_zero() -> None:
    params = initial_params(Problem(inputs=784, classes=10, hidden=(25,), seed=3), 7)
    for weight, fan_in in zip(params.weights, (784, 25), strict=True):
        bound = fan_in**-0.5
        assert weight.dtype == np.float32
        assert np.abs(weight).max() <= np.float32(bound)
        shares = np.histogram(weight, bins=5, range=(-bound, bound))[0] / weight.size
        assert np.abs(shares - 0.2).max() < 4 * (0.2 * 0.8 / weight.size) ** 0.5
    assert [bias.tolist() for bias in params.biases] == [[0.0] * 25, [0.0] * 10]


@pytest.mark.parametrize(("inputs", "hidden"), [(5, ()), (5, (33, 31, 7)), (784, (128, 129))])
def test_threads_draw_as_one_generator(inputs: int, hidden: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "BLOCK_ELEMENTS", 101)  # blocks begin in the middle of 64 bits, too
    problem, run = Problem(inputs, 3, hidden, seed=4), 2**127 + 5
    random = np.random.default_rng((problem.seed, run))
    for layer, weight in zip(problem.layers, initial_params(problem, run).weights, strict=True):
        bound = np.float32(1.0 / np.sqrt(layer.fan_in))
        drawn = random.random((layer.fan_in, layer.fan_out), np.float32)
        assert np.array_equal(weight, drawn * (2 * bound) - bound)


def test_every_run_and_every_seed_has_its_own() -> None:
    drawn = [
        initial_params(Problem(inputs=4, classes=2, seed=seed), run).weights[0].tobytes()
        for seed, run in [(0, 0), (0, 1), (1, 0), (0, 0)]
    ]
    assert len(set(drawn)) == 3
    assert drawn[0] == drawn[3]


def test_several_networks_have_what_each_would_have_alone() -> None:
    problem = Problem(inputs=5, classes=3, hidden=(4,), networks=3, learning_rates=(0.1, 0.2, 0.3))
    stacked = initial_params(problem, 7)
    assert [tensor.shape for tensor in stacked.tensors().values()] == [(3, 5, 4), (3, 4), (3, 4, 3), (3, 3)]
    for network, own in enumerate(stacked.apart()):
        alone = problem.alone(network)
        assert alone == Problem(inputs=5, classes=3, hidden=(4,), learning_rate=problem.learning_rates[network])
        wanted = initial_params(alone, network_run(7, network))
        for name, tensor in wanted.tensors().items():
            np.testing.assert_array_equal(own.tensors()[name], tensor)
    assert network_run(7, 0) == 7
    assert not np.array_equal(stacked.weights[0][0], stacked.weights[0][1])


@pytest.mark.parametrize(("batch", "gpus", "most"), [(8, 1, 8), (8, 2, 4), (7, 2, 4), (7, 3, 3)])
def test_a_gpu_has_its_share_of_a_batch(batch: int, gpus: int, most: int) -> None:
    problem = Problem(5, 3, (4,), batch_size=batch, gpus=gpus)
    assert problem.on_one_gpu == Problem(5, 3, (4,), batch_size=most)


def test_rates_are_as_many_as_networks() -> None:
    with pytest.raises(UsageError, match="networks 2: there are 3 learning rates"):
        Problem(inputs=4, classes=2, networks=2, learning_rates=(0.1, 0.2, 0.3))
    assert Problem(inputs=4, classes=2, networks=2, learning_rate=0.5).rates == (0.5, 0.5)
    with pytest.raises(UsageError, match=r"^gpus 2: divide one network's batches; leave it out with several networks$"):
        Problem(5, 3, gpus=2, networks=2)
