"""Rungs on several GPUs: together they make the updates of one, and all the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from common.cuda.driver import devices
from common.problem import Problem
from ladder.machine.environment import missing
from stages.engine.stage import Stage
from stages.registry import load_all
from tests.in_time import assert_runs
from tests.stages.engine.test_step import assert_first_updates, random_split

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(len(devices()) < 2, reason=f"needs two GPUs; this machine shows {len(devices()) or 'none'}"),
]

LIMIT_S = 50.0  # PyTorch compiles for 10 s on quiet cores
STAGES = [entry.stage for entry in load_all().values() if entry.stage.takes_gpus]


@pytest.mark.parametrize(("hidden", "batch"), [((), 128), ((100,), 96), ((40, 24, 9), 33), ((8,), 2)], ids=str)
@pytest.mark.parametrize("stage", STAGES, ids=lambda stage: stage.name)
def test_first_updates_are_those_of_one_gpu(stage: Stage, hidden: tuple[int, ...], batch: int) -> None:
    if reason := missing(stage.needs):
        pytest.skip(reason)
    problem = Problem(49, 10, hidden, batch_size=batch, metrics_every=2, gpus=2)
    if reason := stage.misfit(problem, steps=5):
        pytest.skip(reason)
    assert_runs(f"from tests.gpu.test_devices import Problem, train; train({stage.name!r}, {problem!r})", LIMIT_S)


def train(name: str, problem: Problem) -> None:
    """First updates are those of one GPU, and the replicas the same bits."""
    stage = load_all()[name].stage
    split = random_split(5 * problem.batch_size + 1, inputs=problem.inputs, classes=problem.classes)
    trainer: Any = stage.trainer(problem, split)
    for run, epoch in enumerate((1, 0, 1)):
        assert_first_updates(trainer, problem, split, stage.precision, run=run, epoch=epoch)
        trainer.wait()
        own, other = trainer.replicas()
        for name, tensor in own.tensors().items():
            np.testing.assert_array_equal(tensor, other.tensors()[name])
    trainer.close()
