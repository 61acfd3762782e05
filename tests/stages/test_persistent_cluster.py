"""The schedule of the persistent cluster, whatever warp is late, against the oracle; and what fits the cluster."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from common.oracle import Oracle
from common.problem import Problem, initial_params
from stages.persistent_cluster import STAGE, fragments
from tests.stages.cluster_model import Cluster, matrix, neighbour_grams
from tests.stages.numpy_parts import HostDevice
from tests.stages.test_step import random_split

Arrays = tuple[np.ndarray, np.ndarray]


def train(problem: Problem, steps: int, seed: int, mailboxes: int = 2) -> tuple[Arrays, Oracle]:
    """Parameters as the model of the schedule trains them, and the oracle after the same steps."""
    split = random_split(steps * problem.batch_size, problem.inputs, problem.classes)
    images = fragments(HostDevice(), list(split.pixels().reshape(steps, problem.batch_size, -1)))
    labels = split.labels.astype(np.int32).reshape(steps, -1)
    params = initial_params(problem, run=1)
    oracle = Oracle(problem, params)
    oracle.run_epoch(split.images, split.labels)
    cluster = Cluster(images, labels, neighbour_grams(images), mailboxes=mailboxes)
    random = np.random.default_rng(seed)
    return cluster.train(params.weights[0], params.biases[0], problem.learning_rate, random), oracle


@pytest.mark.parametrize(
    ("inputs", "classes", "batch", "steps"),
    [(5, 3, 16, 1), (40, 10, 32, 5), (300, 10, 48, 3), (784, 10, 128, 3), (17, 16, 16, 4)],
    ids=str,
)
def test_the_schedule_trains_as_the_oracle_does(inputs: int, classes: int, batch: int, steps: int) -> None:
    problem = Problem(inputs=inputs, classes=classes, batch_size=batch)
    initial = initial_params(problem, run=1).weights[0]
    (weight, bias), oracle = train(problem, steps, seed=0)
    # What float32 NumPy measures, and a little: the harness allows 3.4e-6 and the rounding of the weights themselves.
    moved = np.linalg.norm(oracle.weights[0] - initial)
    assert np.linalg.norm(weight - oracle.weights[0]) < 3e-6 * moved
    assert np.linalg.norm(bias - oracle.biases[0]) < 1e-6 * np.linalg.norm(oracle.biases[0])


def test_it_is_the_same_bits_whoever_is_late() -> None:
    problem = Problem(inputs=70, classes=10, batch_size=64)
    runs = [train(problem, 5, seed)[0] for seed in range(4)]
    for weight, bias in runs[1:]:
        np.testing.assert_array_equal(weight, runs[0][0])
        np.testing.assert_array_equal(bias, runs[0][1])


def test_with_one_mailbox_instead_of_two_it_would_be_overwritten() -> None:
    with pytest.raises(AssertionError, match=r"came too early|overwritten"):
        train(Problem(inputs=70, classes=10, batch_size=64), 5, seed=0, mailboxes=1)


def test_fragments_hold_every_pixel_the_bias_s_one_and_zeros() -> None:
    random = np.random.default_rng(0)
    batch = random.integers(0, 256, (32, 21)).astype(np.float32) / 256
    images = fragments(HostDevice(), [batch])
    assert images.shape == (1, 2, 2, 2, 2, 8, 8)
    whole = np.block([[matrix(images[0, tile, pair]) for tile in range(2)] for pair in range(2)])
    np.testing.assert_array_equal(whole, np.hstack([batch, np.ones((32, 1)), np.zeros((32, 10))]))


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({}, ""),
        ({"hidden": (256, 64)}, "hidden layers of 256,64: it trains softmax regression alone"),
        ({"batch_size": 100}, "batch size 100: it takes multiples of 16 up to 128"),
        ({"batch_size": 144}, "batch size 144: it takes multiples of 16 up to 128"),
        ({"inputs": 1023}, ""),
        ({"inputs": 1024}, "1024 inputs: it takes 1023 at most"),
        ({"classes": 17}, "17 classes: it takes 16 at most"),
    ],
    ids=str,
)
def test_what_does_not_fit_is_told(changed: dict[str, Any], reason: str) -> None:
    told = f"{reason}; try persistent-grid" if reason else None
    assert STAGE.misfit(replace(Problem(inputs=784, classes=10), **changed), steps=468) == told


def test_a_data_set_beyond_the_reach_of_an_index_is_told() -> None:
    told = STAGE.misfit(Problem(inputs=784, classes=10), steps=20_000)
    assert told is not None
    assert told.startswith("20,000 steps: ")
