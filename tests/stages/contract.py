"""What the trainer of every stage promises: tests/gpu tries it on a GPU, test_contract.py on a CPU."""

from __future__ import annotations

from collections.abc import Callable

from common.data.dataset import Split
from common.problem import Params, Problem, initial_params
from common.trainer import Trainer
from ladder.verify.gates import FLIPPED_IMAGES
from stages.engine.stage import Stage
from tests.stages.engine.test_step import assert_first_updates, assert_validates, random_split

LOSS = {"float32": 1e-5, "tf32": 1e-3, "bfloat16": 1e-2, "float16": 1e-3}  # of a validation, relative


def trainer_contract(stage: Stage, problem: Problem, build: Callable[[Problem, Split], Trainer]) -> None:
    """Assert it on a problem with images left over, which fill no batch.

    The first updates are the oracle's, and parameters that were read stay as they are. What a trainer says of the test
    images is what float64 makes of its parameters. A rung ends in the same bits in every run and in every trainer, with
    validation and without.
    """
    batch = problem.batch_size
    train = random_split(3 * batch + batch // 2, problem.inputs, problem.classes, seed=batch)
    test = random_split(5 * batch + batch // 2, problem.inputs, problem.classes, seed=1)
    trainer = build(problem, train)
    for run in range(2):  # the second from other parameters, through the same buffers
        assert_first_updates(trainer, problem, train, stage.precision, run)
    once = _trained(trainer, problem, run=0)
    bits = _bits(once)
    _trained(trainer, problem, run=1)
    assert _bits(once) == bits  # what was read is no view of what is trained
    again = _bits(_trained(trainer, problem, run=0))
    trainer.close()
    moved = FLIPPED_IMAGES[stage.precision] + 1.001 / len(test.images)
    validated = assert_validates(build(problem, train), problem, test, LOSS[stage.precision], moved)
    if stage.recipe is not None:
        assert bits == again == _bits(validated)


def _trained(trainer: Trainer, problem: Problem, run: int) -> Params:
    trainer.load_params(initial_params(problem, run))
    for epoch in range(2):
        trainer.run_epoch(epoch)
    return trainer.read_params()


def _bits(params: Params) -> list[bytes]:
    return [tensor.tobytes() for tensor in params.tensors().values()]
