"""A stage that trains one network trains several, one whole training after the other."""

from __future__ import annotations

import numpy as np
import pytest

from common.problem import initial_params, network_run
from common.trainer import EpochMetrics
from ladder.measure.timing import timed_run
from stages.engine.in_a_row import InARow
from stages.references.numpy_cpu import NumpyTrainer
from tests.ladder.harness import small_dataset, small_problem

LOG: list[str] = []


class Logged(NumpyTrainer):
    def load_params(self, params):  # type: ignore[no-untyped-def]
        LOG.append("load")
        super().load_params(params)

    def run_epoch(self, epoch: int) -> None:
        LOG.append(f"epoch {epoch} at {self._problem.learning_rate:g}")
        super().run_epoch(epoch)

    def close(self) -> None:
        LOG.append("close")


@pytest.fixture(autouse=True)
def _empty_log() -> None:
    LOG.clear()


@pytest.mark.parametrize("rates", [(), (0.1, 0.3)])
def test_each_network_is_trained_as_it_is_alone(rates: tuple[float, ...]) -> None:
    problem, train = small_problem(networks=2, learning_rates=rates), small_dataset().train
    trainer = InARow(Logged, problem, train)
    run = timed_run(trainer, initial_params(problem, 5), 2, fence=lambda: None, clock=lambda: 0.0)
    second = rates[1] if rates else 0.1
    begun = ["load", "epoch 0 at 0.1", "epoch 1 at 0.1"]
    assert [*begun, "load", f"epoch 0 at {second:g}", f"epoch 1 at {second:g}"] == LOG
    found = trainer.read_params().apart()
    for network, own in enumerate(found):
        alone = NumpyTrainer(problem.alone(network), train)
        initial = initial_params(problem.alone(network), network_run(5, network))
        wanted = timed_run(alone, initial, 2, fence=lambda: None, clock=lambda: 0.0)
        for name, tensor in alone.read_params().tensors().items():
            np.testing.assert_array_equal(own.tensors()[name], tensor)
        assert {epoch: seen.networks[network] for epoch, seen in run.metrics.items()} == wanted.metrics
    assert run.metrics[1] == EpochMetrics.over(run.metrics[1].networks)
    trainer.close()
    assert LOG.count("close") == (2 if rates else 1)


def test_a_run_goes_on_after_its_parameters_were_read() -> None:
    problem, train = small_problem(networks=3), small_dataset().train
    once, twice = (InARow(NumpyTrainer, problem, train) for _ in range(2))
    for trainer in (once, twice):
        trainer.load_params(initial_params(problem, 1))
    for epoch in range(2):
        once.run_epoch(epoch)
        twice.run_epoch(epoch)
        twice.wait()
        twice.wait()
    once.wait()
    for a, b in zip(once.read_params().weights, twice.read_params().weights, strict=True):
        np.testing.assert_array_equal(a, b)
