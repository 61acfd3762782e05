"""The stages that train several networks at once, each network against an oracle of its own."""

from __future__ import annotations

import numpy as np
import pytest

from common.oracle import Oracle
from common.problem import Problem, initial_params, network_run
from common.trainer import wait_of
from stages.registry import load_all
from tests.stages.engine.test_step import random_split

FLEETS = [entry.stage for entry in load_all().values() if entry.stage.is_fleet]
PROBLEMS = [
    Problem(49, 10, networks=3, batch_size=16, metrics_every=1),
    Problem(49, 10, (7, 6), networks=5, batch_size=8, metrics_every=1),
    Problem(49, 10, (20,), networks=2, learning_rates=(0.02, 0.5), batch_size=16, metrics_every=1),
]


@pytest.mark.parametrize("problem", PROBLEMS, ids=["seeds", "layers", "rates"])
@pytest.mark.parametrize("stage", FLEETS, ids=lambda stage: stage.name)
def test_each_network_follows_its_oracle(stage, problem: Problem) -> None:  # type: ignore[no-untyped-def]
    from ladder.machine.environment import missing

    if reason := missing(stage.needs) or stage.misfit(problem, 5):
        pytest.skip(reason)
    split = random_split(5 * problem.batch_size + 3, 49, 10)
    trainer = stage.build(problem, split)
    trainer.load_params(initial_params(problem, 3))
    trainer.run_epoch(0)
    seen = trainer.last_metrics()
    wait_of(trainer)()
    for network, own in enumerate(trainer.read_params().apart()):
        alone = problem.alone(network)
        oracle = Oracle(alone, initial_params(alone, network_run(3, network)))
        wanted = oracle.run_epoch(split.images, split.labels)
        for found, right in zip((*own.weights, *own.biases), (*oracle.weights, *oracle.biases), strict=True):
            np.testing.assert_allclose(found, right, rtol=1e-4, atol=2e-6)
        assert seen.networks[network].mean_loss == pytest.approx(wanted.mean_loss, rel=1e-5)
        assert seen.networks[network].accuracy == wanted.accuracy
    trainer.close()
