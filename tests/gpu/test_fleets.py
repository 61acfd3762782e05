"""Rungs that train several networks at once: each has the bits that it has alone."""

from __future__ import annotations

import numpy as np
import pytest

from common.problem import Problem, initial_params, network_run
from ladder.machine.environment import missing
from stages.persistent import r1_persistent_cluster, r2_fleet_cluster
from tests.stages.engine.test_step import random_split

pytestmark = pytest.mark.gpu


FIVE = (0.02, 0.05, 0.1, 0.2, 0.4)


@pytest.mark.parametrize(
    ("hidden", "networks", "rates"),
    [((), 2, ()), ((), 5, FIVE), ((), 7, ()), ((), 9, ()), ((), 40, ()), ((33,), 5, FIVE), ((40, 24, 9), 9, ())],
    ids=str,
)
def test_each_network_has_the_bits_that_it_has_alone(
    hidden: tuple[int, ...], networks: int, rates: tuple[float, ...]
) -> None:
    if reason := missing(r2_fleet_cluster.STAGE.needs):
        pytest.skip(reason)
    problem = Problem(49, 10, hidden, batch_size=32, networks=networks, learning_rates=rates, metrics_every=2)
    split = random_split(20 * 32, inputs=49, classes=10)
    trainer = r2_fleet_cluster.STAGE.build(problem, split)
    trainer.load_params(initial_params(problem, 5))
    for epoch in range(4):
        trainer.run_epoch(epoch)
    seen, found = trainer.last_metrics(), trainer.read_params().apart()
    assert seen is not None
    for network in {0, 1, networks // 2, networks - 1}:
        own = problem.alone(network)
        alone = r1_persistent_cluster.STAGE.build(own, split)
        alone.load_params(initial_params(own, network_run(5, network)))
        for epoch in range(4):
            alone.run_epoch(epoch)
        for name, tensor in alone.read_params().tensors().items():
            np.testing.assert_array_equal(found[network].tensors()[name], tensor)
        assert seen.networks[network] == alone.last_metrics()
        alone.close()
    trainer.close()
