"""The synthetic digits: repeatable, varied, and as hard as they are meant to be."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from numpy.typing import NDArray

from common import oracle
from common.data.synthetic import synthetic_digits
from common.problem import Problem, initial_params

Digits = tuple[NDArray[np.uint8], NDArray[np.uint8]]


@pytest.fixture(scope="module")
def digits() -> tuple[Digits, Digits]:
    return synthetic_digits(0, train_images=12_000, test_images=2_000)


def accuracy(digits: tuple[Digits, Digits], hidden: tuple[int, ...]) -> float:
    """Test accuracy after six quick epochs."""
    (images, labels), (test_images, test_labels) = digits
    problem = Problem(inputs=784, classes=10, hidden=hidden, batch_size=64, learning_rate=0.3)
    network = oracle.Oracle(problem, initial_params(problem, run=0))
    for _ in range(6):
        network.run_epoch(images.reshape(-1, 784), labels)
    return oracle.test_accuracy(network.weights, network.biases, test_images.reshape(-1, 784), test_labels)


def test_a_small_network_beats_softmax_regression_clearly(digits: tuple[Digits, Digits]) -> None:
    linear, network = accuracy(digits, ()), accuracy(digits, (64,))
    assert 0.80 < linear < 0.93
    assert network > 0.94
    assert network > linear + 0.05


def test_classes_are_balanced_and_in_no_order(digits: tuple[Digits, Digits]) -> None:
    for (images, labels), count in zip(digits, (12_000, 2_000), strict=True):
        assert (images.shape, labels.shape) == ((count, 28, 28), (count,))
        assert images.dtype == labels.dtype == np.uint8
        counts = np.bincount(labels)
        assert len(counts) == 10
        assert counts.min() > 0.8 * counts.mean()
        assert counts.max() < 1.2 * counts.mean()
        assert (labels[1:] == labels[:-1]).mean() < 0.15


def test_ink_stays_off_the_border_and_is_about_as_much_as_in_mnist(digits: tuple[Digits, Digits]) -> None:
    images = digits[0][0]
    assert 25 < images.mean() < 45  # MNIST: 33
    border = np.concatenate([images[:, 0], images[:, -1], images[:, :, 0], images[:, :, -1]])
    assert border.mean() < 1
    both = np.concatenate([split[0] for split in digits])
    assert (both > 50).sum(axis=(1, 2)).min() >= 8  # no image is empty
    assert len({image.tobytes() for image in both}) == len(both)


def test_another_seed_draws_other_digits() -> None:
    first, other = synthetic_digits(1, 50, 10), synthetic_digits(2, 50, 10)
    assert not np.array_equal(first[0][0], other[0][0])
    assert not np.array_equal(first[0][1], other[0][1])


def test_the_bytes_are_the_same_on_every_machine() -> None:
    (images, labels), (test_images, test_labels) = synthetic_digits(0, 500, 100)
    digest = hashlib.sha256()
    for array in (images, labels, test_images, test_labels):
        digest.update(array.tobytes())
    assert digest.hexdigest() == "e14c1b563df93b5c32ff256ea755022727e50ea5afc854a25882800ba0e84e8e"
