"""What the persistent cluster enqueues, and what fits the cluster. tests/kernels executes its kernels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from common.problem import Problem
from stages.engine.step import set_up
from stages.engine.workspace import Array
from stages.persistent.fragments import fragments
from stages.persistent.persistent_cluster import ClusterRegression
from tests.kernels.halves import matrix
from tests.stages.engine.test_step import random_split
from tests.stages.fusion.test_parallel_branches import RacingDevice
from tests.stages.numpy_parts import RECIPE, HostDevice


@dataclass
class Room(RacingDevice):
    """Writes down what the stage enqueues, on a GPU with room for so many clusters."""

    clusters: int = 2
    block_shared_bytes: int = 227 << 10

    def zero(self, array: Array) -> None:
        self.enqueue("zero", [], [array])

    def enqueue(self, name: str, reads: list[Array], writes: list[Array]) -> None:
        super().enqueue(name, reads, writes)
        if name == "persistent_cluster":  # which ends after its products, for whose flags it waits
            self.done[None] |= self.done.get(0, frozenset())

    def kernel(self, source: Path, name: str, **shape: Any) -> Callable[..., None]:
        launch = super().kernel(source, name, **shape)
        launch.clusters_at_once = lambda block: self.clusters  # type: ignore[attr-defined]
        return launch


@pytest.mark.parametrize(("clusters", "epochs_ago"), [(2, 2), (1, 1)])
def test_products_wait_for_set_up_and_the_training_that_read_their_buffer(clusters: int, epochs_ago: int) -> None:
    problem, epochs = Problem(inputs=9, classes=3, batch_size=16), 5
    device = Room(clusters=clusters)
    train_epoch = ClusterRegression(set_up(RECIPE, problem, random_split(48, 9, 3), device))
    set_up_work = frozenset(range(len(device.work)))
    for _ in range(epochs):
        train_epoch(with_metrics=False)

    launches = device.work[len(set_up_work) :]
    assert [work.name for work in launches] == ["neighbour_grams", "persistent_cluster"] * epochs
    trainings = range(len(set_up_work) + 1, len(device.work), 2)
    for epoch, (products, training) in enumerate(zip(launches[::2], launches[1::2], strict=True)):
        assert set_up_work <= products.after
        assert products.after & set(trainings) == set(trainings[: max(epoch + 1 - epochs_ago, 0)])
        assert all(any(written is read for read in training.reads) for written in products.writes)
    # An epoch's products and its training, which have a flag for each step, are all that touch the same at a time.
    assert device.races() == [("neighbour_grams", "persistent_cluster")] * (epochs if clusters > 1 else 0)


@pytest.mark.parametrize(
    ("networks", "clusters", "grams", "is_beside"),
    [(2, 5, 3, True), (4, 5, 1, True), (5, 5, 5, False), (9, 5, 5, False)],
)
def test_products_of_a_fleet_take_the_clusters_that_its_training_leaves(
    networks: int, clusters: int, grams: int, is_beside: bool
) -> None:
    grids: list[tuple[str, int]] = []

    class Counts(Room):
        def kernel(self, source: Path, name: str, **shape: Any) -> Callable[..., None]:
            launch = super().kernel(source, name, **shape)

            def counted(grid: int, block: int, *arguments: Any) -> None:
                grids.append((name, grid))
                launch(grid, block, *arguments)

            counted.clusters_at_once = lambda block: self.clusters  # type: ignore[attr-defined]
            return counted

    device, problem = Counts(clusters=clusters), Problem(inputs=9, classes=3, batch_size=16)
    rates = [0.1] * networks
    train_epoch = ClusterRegression(set_up(RECIPE, problem, random_split(48, 9, 3), device), rates)
    for _ in range(2):
        train_epoch(with_metrics=False)
    assert grids == [("neighbour_grams", grams), ("persistent_cluster", networks)] * 2
    assert bool(device.races()) == is_beside


def test_fragments_hold_every_pixel_the_bias_s_one_and_zeros() -> None:
    random = np.random.default_rng(0)
    batch = random.integers(0, 256, (32, 21)).astype(np.float32) / 256
    images = fragments(HostDevice(), [batch])
    assert images.shape == (1, 2, 2, 2, 2, 8, 8)
    whole = np.block([[matrix(images[0, tile, pair]) for tile in range(2)] for pair in range(2)])
    np.testing.assert_array_equal(whole, np.hstack([batch, np.ones((32, 1)), np.zeros((32, 10))]))
