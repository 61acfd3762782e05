"""Two runs from the same parameters end in the same bits: in one trainer, and in another one."""

from __future__ import annotations

import pytest

from common.problem import Problem, initial_params
from common.trainer import Trainer
from stages.registry import Entry
from tests.gpu.test_rungs import RUNGS, build
from tests.stages.engine.test_step import random_split

pytestmark = pytest.mark.gpu

EPOCHS = 2


def bits(trainer: Trainer, problem: Problem) -> list[bytes]:
    """The parameters after a run, byte for byte."""
    trainer.load_params(initial_params(problem, 0))
    for epoch in range(EPOCHS):
        trainer.run_epoch(epoch)
    return [tensor.tobytes() for tensor in trainer.read_params().tensors().values()]


@pytest.mark.parametrize("hidden", [(), (256,), (33, 17)], ids=str)
@pytest.mark.parametrize("entry", RUNGS, ids=lambda entry: entry.stage.name)
def test_a_rung_is_repeatable_bit_by_bit(entry: Entry, hidden: tuple[int, ...]) -> None:
    problem = Problem(inputs=784, classes=10, hidden=hidden, batch_size=128, epochs=EPOCHS, metrics_every=2)
    split = random_split(128 * 20, inputs=784, classes=10)
    first, second = (build(entry, problem, split) for _ in range(2))
    once = bits(first, problem)
    assert bits(first, problem) == once
    assert bits(second, problem) == once
