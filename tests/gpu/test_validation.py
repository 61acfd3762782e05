"""Every stage that runs on a GPU looks at the test images by itself, and trains as it did without."""

from __future__ import annotations

import pytest

from common.problem import Problem, initial_params
from common.trainer import Trainer, ValidatingTrainer
from ladder.verify.gates import FLIPPED_IMAGES
from stages.registry import Entry
from tests.gpu.test_rungs import RUNGS, STAGES, build
from tests.stages.engine.test_step import assert_validates, random_split

pytestmark = pytest.mark.gpu

LOSS = {"float32": 1e-5, "tf32": 1e-3, "bfloat16": 1e-2, "float16": 1e-3}  # relative
SIZES = [((), 128), ((33,), 32), ((17, 5, 9), 31), ((256,), 128)]


@pytest.mark.parametrize(("hidden", "batch"), SIZES, ids=str)
@pytest.mark.parametrize("entry", STAGES, ids=lambda entry: entry.stage.name)
def test_it_says_what_float64_makes_of_its_parameters(entry: Entry, hidden: tuple[int, ...], batch: int) -> None:
    problem = Problem(inputs=49, classes=10, hidden=hidden, batch_size=batch)
    trainer = build(entry, problem, random_split(3 * batch, 49, 10))
    test, precision = random_split(5 * batch + batch // 2, 49, 10, seed=1), entry.stage.precision
    moved = FLIPPED_IMAGES[precision] + 1.001 / len(test.images)
    assert_validates(trainer, problem, test, LOSS[precision], moved)


@pytest.mark.parametrize("entry", RUNGS, ids=lambda entry: entry.stage.name)
def test_training_is_the_same_bit_for_bit_with_validation(entry: Entry) -> None:
    problem = Problem(inputs=784, classes=10, hidden=(256,), batch_size=128, epochs=2, metrics_every=2)
    split, test = random_split(128 * 5, 784, 10), random_split(300, 784, 10, seed=1)

    def trained(trainer: Trainer, *, validates: bool) -> list[bytes]:
        assert isinstance(trainer, ValidatingTrainer)
        if validates:
            trainer.prepare_validation(test)
        trainer.load_params(initial_params(problem, 0))
        for epoch in range(problem.epochs):
            trainer.run_epoch(epoch)
            if validates:
                trainer.validate()
        return [tensor.tobytes() for tensor in trainer.read_params().tensors().values()]

    without, with_it = (trained(build(entry, problem, split), validates=validates) for validates in (False, True))
    assert without == with_it
