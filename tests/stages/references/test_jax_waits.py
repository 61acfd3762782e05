"""JAX waits at the end of a run, where its metrics are read, and nowhere else."""

from __future__ import annotations

import time
from typing import Any

import pytest

from common.problem import Problem, initial_params
from common.trainer import WaitingTrainer
from ladder.measure.timing import timed_run
from stages.references import jax_scan
from stages.references.jax_scan import JaxScanTrainer
from tests.stages.engine.test_step import random_split

pytestmark = pytest.mark.jax
STEPS = 30
PROBLEM = Problem(784, 10, (512, 512), batch_size=64, epochs=4, metrics_every=4)  # an epoch takes a CPU 0.1 s or more


@pytest.fixture
def trainer() -> JaxScanTrainer:
    built = jax_scan.STAGE.build(PROBLEM, random_split(STEPS * 64, 784, 10))
    assert isinstance(built, JaxScanTrainer)
    assert isinstance(built, WaitingTrainer)
    return built


def finished(trainer: JaxScanTrainer) -> bool:
    return all(tensor.is_ready() for layer in trainer._layers for tensor in layer)


def test_an_epoch_without_metrics_does_not_wait(trainer: JaxScanTrainer) -> None:
    trainer.load_params(initial_params(PROBLEM, 0))
    for epoch in range(2):
        trainer.run_epoch(epoch)
        assert not finished(trainer)
        assert trainer.last_metrics() is None
    trainer.wait()
    assert finished(trainer)
    trainer.run_epoch(3)
    assert finished(trainer)
    assert trainer.last_metrics() is not None


def test_a_run_waits_once_and_its_time_contains_the_wait(
    trainer: JaxScanTrainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    log: list[str] = []
    wait, run_epoch = trainer._jax.block_until_ready, trainer.run_epoch

    def counted(tensors: Any) -> Any:
        log.append("wait")
        return wait(tensors)

    def clock() -> float:
        log.append("clock, finished" if finished(trainer) else "clock, under way")
        return time.perf_counter()

    def logged(epoch: int) -> None:
        log.append(f"epoch {epoch}")
        run_epoch(epoch)

    monkeypatch.setattr(trainer._jax, "block_until_ready", counted)
    monkeypatch.setattr(trainer, "run_epoch", logged)
    # A fence that sees nothing, as the driver's may where XLA has not launched yet.
    timed_run(trainer, initial_params(PROBLEM, 0), 3, fence=lambda: None, clock=clock)
    loading = log.index("epoch 0")
    assert log[loading:] == ["epoch 0", "epoch 1", "epoch 2", "wait", "clock, finished"]
    assert log[loading - 1] == "clock, finished"
