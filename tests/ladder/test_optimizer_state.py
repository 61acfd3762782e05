"""An optimizer's state goes where the parameters go, shown by momentum: the ladder itself trains by plain SGD."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from common.data.dataset import Split
from common.oracle import FloatArray, Oracle
from common.problem import Params, Problem, initial_params
from common.trainer import Trainer
from ladder.measure.curves import part_of, record_curve, windows
from ladder.measure.protocol import load_params, save_params
from ladder.measure.timing import train_on
from ladder.records.run import Check
from ladder.verify.control import ROUNDINGS, Control, Draw
from ladder.verify.gates import verify_late_epoch, verify_short_run
from ladder.verify.short_runs import ShortRun
from stages.engine.in_a_row import InARow
from stages.engine.recipe import Gemm, Recipe
from stages.engine.step import RecipeTrainer
from stages.engine.workspace import Array, Setup
from tests.ladder.harness import small_dataset
from tests.stages.engine.test_step import random_split
from tests.stages.numpy_parts import RECIPE, HostDevice, NumpyUpdate

MOMENTUM, BATCHES = np.float32(0.9), 6


class MomentumProblem(Problem):
    """A problem whose optimizer has a velocity for each parameter."""

    @property
    def state_shapes(self) -> list[tuple[int, ...]]:
        return [*((layer.fan_in, layer.fan_out) for layer in self.layers), *((la.fan_out,) for la in self.layers)]


class MomentumUpdate(NumpyUpdate):
    """velocity = 0.9 velocity + gradient; parameters -= lr * velocity."""

    def __init__(self, setup: Setup, gemm: Gemm) -> None:
        super().__init__(setup, gemm)
        self._velocities = setup.tensors.state

    def __call__(self, layer: int, inputs: Array) -> None:
        weights, biases, doutput = self._tensors.weights, self._tensors.biases, self._tensors.doutputs[layer]
        of_weight, of_bias = self._velocities[layer], self._velocities[len(weights) + layer]
        self._gemm(inputs, doutput, of_weight, trans_a=True, beta=float(MOMENTUM))
        of_bias[...] = MOMENTUM * of_bias + doutput.sum(axis=0)
        weights[layer] -= np.float32(self._rate) * of_weight
        biases[layer] -= np.float32(self._rate) * of_bias


class DroppingTrainer(RecipeTrainer):
    """Forgets the state when it is read."""

    def read_params(self) -> Params:
        seen = super().read_params()
        return replace(seen, state=tuple(map(np.zeros_like, seen.state)))


PROBLEM = MomentumProblem(inputs=13, classes=3, hidden=(5,), batch_size=8, metrics_every=1, epochs=2)
SPLIT = random_split(BATCHES * 8, 13, 3)
BY_MOMENTUM = replace(RECIPE, update=MomentumUpdate)


@pytest.fixture(autouse=True)
def momentum(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the oracle and its controls train with momentum."""

    def update(oracle: Any, layer: int, inputs: FloatArray, doutput: FloatArray) -> None:
        dweight = oracle._product(oracle.xp.swapaxes(inputs, -1, -2), doutput, ("dweight", layer))
        dbias, layers = oracle._column_sums(doutput, ("dbias", layer)), len(oracle.weights)
        for kind, tensors, place, gradient in (
            ("weight", oracle.weights, layer, dweight),
            ("bias", oracle.biases, layers + layer, dbias),
        ):
            velocity = oracle.state[place]
            velocity *= MOMENTUM
            velocity += gradient
            oracle._subtract(tensors[layer], oracle.problem.learning_rate * velocity, (kind, layer))

    monkeypatch.setattr(Oracle, "_update", update)


def trainer(kind: type[RecipeTrainer] = RecipeTrainer, recipe: Recipe = BY_MOMENTUM) -> RecipeTrainer:
    made = kind(recipe, PROBLEM, SPLIT, HostDevice())
    made.load_params(initial_params(PROBLEM, 0))
    return made


def train(trainer: Trainer, *epochs: int) -> Any:
    return train_on(trainer, epochs, lambda: None)


def failed(checks: list[Check]) -> list[str]:
    (limit,) = [check.limit for check in checks if check.what.endswith(", tensors")]
    assert limit is not None
    assert limit < 1e-4  # controls keep their state, too
    return [check.what for check in checks if not check.passed]


@pytest.mark.parametrize(("recipe", "is_right"), [(BY_MOMENTUM, True), (RECIPE, False)])
def test_a_part_with_a_state_is_judged_by_an_oracle_with_one(recipe: Recipe, is_right: bool) -> None:
    own = trainer(recipe=recipe)
    run = ShortRun(PROBLEM, BATCHES, initial_params(PROBLEM, 0), SPLIT.images, SPLIT.labels, epochs=3)
    seen = train(own, 0, 1, 2)
    assert (not failed(verify_short_run("3 epochs", "float32", run, own.read_params(), seen))) == is_right


@pytest.mark.parametrize("kind", [RecipeTrainer, DroppingTrainer])
def test_a_late_epoch_begins_with_the_state_that_was_read(kind: type[RecipeTrainer], tmp_path: Path) -> None:
    own, file = trainer(kind), tmp_path / "late-begin.npy"
    train(own, 0, 1)
    save_params(file, own.read_params())
    run = ShortRun(PROBLEM, BATCHES, load_params(file, PROBLEM), SPLIT.images, SPLIT.labels)
    seen = train(own, 2)
    checks = verify_late_epoch("late epoch", "float32", run, 2, own.read_params(), seen)
    assert bool(failed(checks)) == (kind is DroppingTrainer)


@pytest.mark.parametrize("kind", [RecipeTrainer, DroppingTrainer])
def test_a_curve_s_trainers_hand_the_state_on(kind: type[RecipeTrainer]) -> None:
    data = replace(small_dataset(), train=SPLIT, test=SPLIT)
    params, oracle = initial_params(PROBLEM, 0), Oracle(PROBLEM, initial_params(PROBLEM, 0))

    def build(problem: Problem, split: Split) -> Trainer:
        return kind(BY_MOMENTUM, problem, split, HostDevice())

    curve = record_curve(build, PROBLEM, data, params, 2, lambda: None)
    wanted = [
        oracle.run_epoch(*part_of(SPLIT, PROBLEM, part)).mean_loss
        for _ in range(PROBLEM.epochs)
        for part in windows(BATCHES, 2)
    ]
    apart = max(abs(point.loss - loss) for point, loss in zip(curve.training, wanted, strict=True) if point.loss)
    assert (apart < 1e-5) == (kind is RecipeTrainer)


def test_networks_in_a_row_keep_their_states() -> None:
    both = replace(PROBLEM, networks=2)
    row = InARow(lambda problem, split: RecipeTrainer(BY_MOMENTUM, problem, split, HostDevice()), both, SPLIT)
    row.load_params(initial_params(both, 0))
    for epoch in range(3):
        train(row, epoch)
    for network, seen in enumerate(row.read_params().apart()):
        alone = trainer()
        alone.load_params(initial_params(both, 0).apart()[network])
        train(alone, 0, 1, 2)
        assert [array.tobytes() for array in seen.arrays] == [array.tobytes() for array in alone.read_params().arrays]


@pytest.mark.parametrize("control", [False, True])
def test_steps_that_are_repeated_put_the_state_back(control: bool) -> None:
    params = initial_params(PROBLEM, 0)
    own = Control(PROBLEM, params, [Draw(ROUNDINGS["float32"], 1)]) if control else Oracle(PROBLEM, [params])
    own.run_epochs(SPLIT.images, SPLIT.labels)
    start = own.on(np)
    ends = []
    for _ in range(2):
        own.load(start)
        own.run_epochs(SPLIT.images, SPLIT.labels)
        ends.append([tensor.tobytes() for network in own.networks() for part in network for tensor in part])
    assert ends[0] == ends[1]
    other = Oracle(PROBLEM, start.networks())
    assert [state.shape for state in other.state] == [(1, *shape) for shape in PROBLEM.state_shapes]
    assert all(np.array_equal(one, two) for one, two in zip(other.state, start.state, strict=True))


def test_a_file_without_the_state_is_incomplete(tmp_path: Path) -> None:
    file, params = tmp_path / "params.npy", initial_params(PROBLEM, 0)
    save_params(file, replace(params, state=()))
    with pytest.raises(ValueError, match=r"^params\.npy: "):
        load_params(file, PROBLEM)
    save_params(file, replace(params, state=params.state[::-1]))
    with pytest.raises(ValueError, match="an optimizer's state of shape"):
        load_params(file, PROBLEM)
    save_params(file, params)
    with pytest.raises(ValueError, match="more than the parameters"):
        load_params(file, replace(Problem(13, 3, (5,)), batch_size=8))
