"""Rungs that train several networks at once: each has the bits that it has alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from common.data.dataset import Split
from common.problem import Params, Problem, initial_params, network_run
from common.trainer import EpochMetrics
from ladder.machine.environment import missing
from stages.engine.stage import Stage
from stages.engine.step import RecipeTrainer
from stages.persistent import (
    fleet_cluster,
    fleet_columns,
    fleet_columns_fp16,
    fleet_grid,
    persistent_cluster,
    persistent_grid,
)
from stages.persistent.fleet_grid import turns
from tests.stages.engine.test_step import random_split

pytestmark = pytest.mark.gpu


FIVE = (0.02, 0.05, 0.1, 0.2, 0.4)


@pytest.mark.parametrize(
    ("hidden", "networks", "rates"),
    [((), 2, ()), ((), 5, FIVE), ((), 7, ()), ((), 9, ()), ((), 40, ()), ((33,), 5, FIVE), ((40, 24, 9), 9, ())],
    ids=str,
)
def test_each_network_of_fleet_cluster_has_the_bits_of_persistent_cluster(
    hidden: tuple[int, ...], networks: int, rates: tuple[float, ...]
) -> None:
    problem = Problem(49, 10, hidden, batch_size=32, networks=networks, learning_rates=rates, metrics_every=2)
    assert_bits_as_alone(fleet_cluster.STAGE, persistent_cluster.STAGE, problem)


@pytest.mark.parametrize(
    ("inputs", "hidden", "batch_size", "networks", "rates"),
    [
        (49, (), 32, 2, ()),
        (784, (), 128, 5, FIVE),
        (300, (), 80, 33, ()),
        (784, (), 128, 64, ()),
        (784, (), 128, 200, ()),
        (49, (33,), 24, 5, FIVE),
        (784, (128, 128, 128), 32, 20, ()),
    ],
    ids=str,
)
def test_each_network_of_fleet_columns_has_the_bits_that_it_has_alone(
    inputs: int, hidden: tuple[int, ...], batch_size: int, networks: int, rates: tuple[float, ...]
) -> None:
    problem = Problem(inputs, 10, hidden, batch_size, networks=networks, learning_rates=rates, metrics_every=2)
    assert_bits_as_alone(fleet_columns.STAGE, fleet_columns.STAGE, problem)


@pytest.mark.parametrize(
    ("hidden", "batch_size", "networks", "rates"),
    [((33,), 24, 5, FIVE), ((128, 128, 128), 32, 40, ()), ((64,), 64, 20, ())],
    ids=str,
)
def test_each_network_of_fleet_columns_fp16_has_the_bits_that_it_has_alone(
    hidden: tuple[int, ...], batch_size: int, networks: int, rates: tuple[float, ...]
) -> None:
    stage = fleet_columns_fp16.STAGE
    problem = Problem(784, 10, hidden, batch_size, networks=networks, learning_rates=rates, metrics_every=2)
    assert_bits_as_alone(stage, stage, problem)


@pytest.mark.parametrize(
    ("hidden", "batch_size", "networks", "rates"),
    [((), 128, 3, ()), ((33,), 32, 5, FIVE), ((17, 5, 9), 31, 5, FIVE), ((200, 150, 90), 64, 2, ())],
    ids=str,
)
def test_each_network_of_fleet_grid_has_the_bits_of_persistent_grid_on_as_many_multiprocessors(
    hidden: tuple[int, ...], batch_size: int, networks: int, rates: tuple[float, ...]
) -> None:
    from common.cuda.gpu import Gpu

    whole, recipe = Gpu(), persistent_grid.STAGE.recipe
    problem = Problem(49, 10, hidden, batch_size, networks=networks, learning_rates=rates, metrics_every=2)
    assert turns(problem, 20, networks, whole.multiprocessors, whole.block_shared_bytes) == [networks]
    assert recipe is not None

    def on_a_share(own: Problem, split: Split) -> RecipeTrainer:
        gpu = Gpu()  # CuPy enqueues on the newest one's stream
        gpu.multiprocessors //= networks
        return RecipeTrainer(recipe, own, split, gpu)

    of_one = replace(persistent_grid.STAGE, build=on_a_share)
    assert_bits_as_alone(fleet_grid.STAGE, of_one, problem)


def assert_bits_as_alone(stage: Stage, of_one: Stage, problem: Problem) -> None:
    """Train all networks, and some of them alone by a stage that is built for one."""
    if reason := missing(stage.needs):
        pytest.skip(reason)
    split, networks = random_split(20 * problem.batch_size, problem.inputs, classes=10), problem.networks
    trainer = stage.build(problem, split)
    trainer.load_params(initial_params(problem, 5))
    for epoch in range(4):
        trainer.run_epoch(epoch)
    seen, found = trainer.last_metrics(), trainer.read_params().apart()
    assert seen is not None
    for network in {0, 1, networks // 2, networks - 1}:
        own = problem.alone(network)
        alone = of_one.build(own, split)
        params = initial_params(own, network_run(5, network))
        alone.load_params(Params.stacked([params]) if of_one.is_fleet else params)
        for epoch in range(4):
            alone.run_epoch(epoch)
        for name, tensor in alone.read_params().tensors().items():
            np.testing.assert_array_equal(found[network].tensors()[name].reshape(tensor.shape), tensor)
        of_alone = alone.last_metrics()
        assert of_alone is not None
        assert seen.networks[network] == EpochMetrics(of_alone.mean_loss, of_alone.accuracy)
        alone.close()
    trainer.close()
