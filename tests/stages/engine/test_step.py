"""The one training step, with parts in NumPy, equals the oracle."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pytest

from common.cuda.epilogue import Fusion
from common.data.dataset import Split
from common.errors import MisfitError
from common.oracle import Oracle, evaluate
from common.problem import Params, Problem, initial_params, network_run
from common.trainer import Trainer, ValidatingTrainer, wait_of
from common.vocabulary import Precision
from ladder.verify.gates import verify_first_update
from ladder.verify.short_runs import ShortRun
from stages.engine import validation
from stages.engine.fleet import FleetLaunch
from stages.engine.recipe import Head
from stages.engine.step import RecipeTrainer
from stages.engine.workspace import Array, Setup
from stages.persistent.persistent_cluster import ClusterEpoch
from stages.references.numpy_cpu import NumpyTrainer
from stages.registry import load_all
from stages.streamed.last_layer_head import LastLayerHead
from tests.stages.numpy_parts import RECIPE, HostDevice, NumpyEpilogue, NumpyGemm, NumpyHead, NumpyUpdate


def random_split(images: int, inputs: int, classes: int, seed: int = 0) -> Split:
    random = np.random.default_rng(seed)
    return Split(
        random.integers(0, 256, (images, inputs), dtype=np.uint8), random.integers(0, classes, images, dtype=np.uint8)
    )


@pytest.mark.parametrize(
    ("hidden", "batch", "images"),
    [((6, 4, 5), 8, 24), ((), 7, 25), ((3,), 1, 4), ((9, 2), 5, 14)],
    ids=["deep", "ragged-logistic", "batch-of-one", "ragged-mlp"],
)
def test_step_equals_the_oracle(hidden: tuple[int, ...], batch: int, images: int) -> None:
    split = random_split(images, inputs=13, classes=3)
    problem = Problem(inputs=13, classes=3, hidden=hidden, batch_size=batch, learning_rate=0.3, metrics_every=2)
    params = initial_params(problem, run=1)
    trainer = RecipeTrainer(RECIPE, problem, split, HostDevice())
    oracle = Oracle(problem, params)

    trainer.load_params(params)
    for epoch in range(2):
        trainer.run_epoch(epoch)
        seen = oracle.run_epoch(split.images, split.labels)

    trained = trainer.read_params()
    pairs = zip((*trained.weights, *trained.biases), (*oracle.weights, *oracle.biases), strict=True)
    for actual, expected in pairs:
        np.testing.assert_allclose(actual, expected, rtol=2e-4, atol=2e-6)
    metrics = trainer.last_metrics()
    assert metrics is not None
    assert metrics.mean_loss == pytest.approx(seen.mean_loss, rel=1e-5)
    assert metrics.accuracy == seen.accuracy


def assert_first_updates(
    trainer: Trainer, problem: Problem, split: Split, precision: Precision = "float32", run: int = 0, epoch: int = 0
) -> None:
    """An epoch from the parameters of a run, which stay as they were, passes the gates of a real run."""
    steps, initial = problem.steps(len(split.images)), initial_params(problem, run)
    before = [tensor.copy() for tensor in initial.tensors().values()]
    trainer.load_params(initial)
    trainer.run_epoch(epoch)
    seen = split.first(steps * problem.batch_size)
    short = ShortRun(problem, steps, initial, seen.images, seen.labels)
    checks = verify_first_update(precision, short, trainer.read_params(), trainer.last_metrics())
    assert [check for check in checks if not check.passed] == []
    counts = {f"first {steps} updates, loss", f"first {steps} updates, accuracy"} <= {check.what for check in checks}
    assert counts or not problem.metrics_due(epoch)
    assert all((now == then).all() for now, then in zip(initial.tensors().values(), before, strict=True))


def assert_each_network_follows_its_oracle(
    trainer: Trainer, problem: Problem, split: Split, run: int = 0, epoch: int = 0
) -> None:
    """An epoch of several networks from the parameters of a run is each one's epoch alone, in float64."""
    trainer.load_params(initial_params(problem, run))
    trainer.run_epoch(epoch)
    seen = trainer.last_metrics()
    wait_of(trainer)()
    assert (seen is not None) == problem.metrics_due(epoch)
    for network, own in enumerate(trainer.read_params().apart()):
        alone = problem.alone(network)
        oracle = Oracle(alone, initial_params(alone, network_run(run, network)))
        wanted = oracle.run_epoch(split.images, split.labels)
        for found, right in zip((*own.weights, *own.biases), (*oracle.weights, *oracle.biases), strict=True):
            np.testing.assert_allclose(found, right, rtol=1e-4, atol=2e-6)
        if seen is not None:
            assert seen.networks[network].mean_loss == pytest.approx(wanted.mean_loss, rel=1e-5)
            assert seen.networks[network].accuracy == wanted.accuracy


def assert_validates(trainer: Trainer, problem: Problem, test: Split, rel: float = 1e-5, moved: float = 0.0) -> Params:
    """What it says of the test images is what float64 makes of its parameters, after each of two epochs anew.

    Returns the parameters after both.
    """
    assert isinstance(trainer, ValidatingTrainer)
    trainer.prepare_validation(test)
    trainer.load_params(initial_params(problem, run=0))
    for epoch in range(2):
        trainer.run_epoch(epoch)
        for _ in range(2):  # it changes nothing
            said, params = trainer.validate(), trainer.read_params()
            expected = evaluate(params.weights, params.biases, test.images, test.labels)
            assert said.mean_loss == pytest.approx(expected.mean_loss, rel=rel)
            assert abs(said.accuracy - expected.accuracy) <= moved + 1e-9
    trainer.close()
    return params


@pytest.mark.parametrize("images", [24, 21, 5], ids=["whole-passes", "with-a-rest", "less-than-a-batch"])
@pytest.mark.parametrize("most", [8, 9, 2560])
@pytest.mark.parametrize("hidden", [(), (5, 4)], ids=str)
def test_validation_is_of_all_test_images(
    hidden: tuple[int, ...], most: int, images: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(validation, "MOST_IMAGES", most)
    problem = Problem(inputs=13, classes=3, hidden=hidden, batch_size=8, learning_rate=0.3)
    train = random_split(24, 13, 3)
    for trainer in (RecipeTrainer(RECIPE, problem, train, HostDevice()), NumpyTrainer(problem, train)):
        assert_validates(trainer, problem, random_split(images, 13, 3, seed=1))


@pytest.mark.parametrize(
    ("images", "batch", "on_gpu", "size"),
    [
        (10_000, 64, True, 2500),
        (10_000, 64, False, 64),
        (2561, 64, True, 1281),
        (30, 64, True, 30),
        (0, 64, True, 0),
        (10_000, 8192, True, 8192),
    ],
)
def test_a_gpu_validates_in_few_passes_of_about_one_size(images: int, batch: int, on_gpu: bool, size: int) -> None:
    assert validation.images_of_a_pass(images, batch, on_gpu=on_gpu) == size


class SmallGemm(NumpyGemm):
    """Products of at most as many images as a batch has."""

    asked: ClassVar[list[int]] = []

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.asked.append(setup.problem.batch_size)

    @classmethod
    def misfit(cls, problem: Problem, steps: int) -> str:
        return "too many images" if problem.batch_size > 8 else ""


def test_parts_that_take_no_more_validate_in_batches_of_the_training() -> None:
    problem = Problem(inputs=13, classes=3, hidden=(5,), batch_size=8, learning_rate=0.3)
    trainer = RecipeTrainer(replace(RECIPE, gemm=SmallGemm), problem, random_split(24, 13, 3), HostDevice())
    assert_validates(trainer, problem, random_split(21, 13, 3, seed=1))
    assert SmallGemm.asked == [8, 8, 5]


class PaddingGemm(NumpyGemm):
    """Products of widths in fours, but for the classes."""

    width_multiple: ClassVar[int] = 4

    def fused(self, a: Array, b: Array, out: Array, fusion: Fusion | None, **how: Any) -> None:
        assert {width % 4 for array in (a, b, out) for width in array.shape} <= {0, 3}
        super().fused(a, b, out, fusion, **how)


@pytest.mark.parametrize("inputs", [13, 16])
def test_a_gemm_may_ask_for_wider_layers_which_nobody_else_sees(inputs: int) -> None:
    problem = Problem(inputs=inputs, classes=3, hidden=(5, 8, 6), batch_size=8, learning_rate=0.3)
    split, test = random_split(24, inputs, 3), random_split(19, inputs, 3, seed=1)
    recipe, trained = replace(RECIPE, gemm=PaddingGemm), []
    for trainer in (RecipeTrainer(recipe, problem, split, HostDevice()), NumpyTrainer(problem, split)):
        trainer.load_params(initial_params(problem, run=0))
        trainer.run_epoch(0)
        trained.append(trainer.read_params())
    for own, other in zip(trained[0].arrays, trained[1].arrays, strict=True):
        np.testing.assert_allclose(own, other, rtol=2e-5, atol=2e-7)
    assert_validates(RecipeTrainer(recipe, problem, split, HostDevice()), problem, test)


class NumpyLastLayerHead(NumpyHead):
    """The head with the last layer, by the parts that it takes over."""

    writes_parameters: ClassVar[bool] = True

    @classmethod
    def for_validation(cls) -> type[Head]:
        return NumpyHead

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        gemm = NumpyGemm(setup)
        self._epilogue, self._update = NumpyEpilogue(setup, gemm), NumpyUpdate(setup, gemm)
        self._last = len(setup.problem.layers) - 1

    def __call__(self, labels: Array, with_totals: bool) -> None:
        inputs = self._tensors.outputs[-2]
        self._epilogue.forward(self._last, inputs)
        super().__call__(labels, with_totals)
        self._epilogue.backward(self._last)
        self._update(self._last, inputs)


def test_a_head_may_take_over_the_last_layer() -> None:
    problem, split = Problem(inputs=13, classes=3, hidden=(5, 4), batch_size=8), random_split(30, 13, 3)
    test, trained = random_split(11, 13, 3, seed=1), []
    for recipe in (RECIPE, replace(RECIPE, head=NumpyLastLayerHead)):
        assert_validates(RecipeTrainer(recipe, problem, split, HostDevice()), problem, test)
        trainer = RecipeTrainer(recipe, problem, split, HostDevice())
        trainer.load_params(initial_params(problem, run=0))
        trainer.run_epoch(0)
        trained.append([tensor.tobytes() for tensor in trainer.read_params().tensors().values()])
    assert trained[0] == trained[1]


def test_no_part_of_a_forward_pass_writes_parameters() -> None:
    recipes = [entry.stage.recipe for entry in load_all().values() if entry.stage.recipe is not None]
    parts = {part for recipe in recipes for part in (recipe.head, recipe.launch) if not issubclass(part, FleetLaunch)}
    writing = {part for part in parts if part.writes_parameters}
    assert {LastLayerHead, ClusterEpoch} <= writing
    assert not any(part.for_validation().writes_parameters for part in parts)
    with pytest.raises(TypeError, match="NumpyUpdate writes parameters: its for_validation must name another part"):
        NumpyUpdate.for_validation()


def test_every_product_of_an_epoch_was_asked_for_while_preparing() -> None:
    """A library chooses its algorithms at the first one of a kind, which must not be in the timer."""
    asked: list[tuple[object, ...]] = []

    class RecordingGemm(NumpyGemm):
        def __call__(self, a: Array, b: Array, out: Array, **how: Any) -> None:
            asked.append((a.shape, b.shape, *sorted(how.items())))
            super().__call__(a, b, out, **how)

    problem = Problem(inputs=13, classes=3, hidden=(4, 5), batch_size=4)
    recipe = replace(RECIPE, gemm=RecordingGemm)
    trainer = RecipeTrainer(recipe, problem, random_split(11, 13, 3), HostDevice())
    prepared = set(asked)
    asked.clear()
    trainer.load_params(initial_params(problem, run=0))
    for epoch in range(10):
        trainer.run_epoch(epoch)
    assert set(asked) == prepared
    assert len(asked) == 10 * 2 * 8


def test_a_withheld_product_is_enqueued_before_the_step_ends() -> None:
    class LateGemm(NumpyGemm):
        def __init__(self, setup: Setup) -> None:
            super().__init__(setup)
            self._withheld: list[tuple[Any, dict[str, Any]]] = []

        def __call__(self, *arrays: Array, **how: Any) -> None:
            self.flush()
            if how.get("trans_a"):  # the weight gradients, which nothing reads until the next step
                self._withheld.append((arrays, how))
            else:
                super().__call__(*arrays, **how)

        def flush(self) -> None:
            while self._withheld:
                arrays, how = self._withheld.pop()
                super().__call__(*arrays, **how)

    problem, split = Problem(inputs=13, classes=3, hidden=(5,), batch_size=8), random_split(24, 13, 3)
    trained = []
    for gemm in (NumpyGemm, LateGemm):
        trainer = RecipeTrainer(replace(RECIPE, gemm=gemm), problem, split, HostDevice())
        trainer.load_params(initial_params(problem, run=0))
        trainer.run_epoch(0)
        trained.append([tensor.tobytes() for tensor in trainer.read_params().tensors().values()])
    assert trained[0] == trained[1]


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"hidden": (1 << 16, 1 << 15)}, "layer 65536x32768: 2,147,483,648 numbers exceed the limit of 1,073,741,824"),
        ({"hidden": (1 << 26,), "batch_size": 32}, "batch of 32x67108864: 2,147,483,648 numbers"),
    ],
)
def test_a_problem_beyond_the_kernels_indices_is_no_crash(changes: dict[str, Any], told: str) -> None:
    problem = Problem(9, 3, **{"batch_size": 2, **changes})
    with pytest.raises(MisfitError) as misfit:
        RecipeTrainer(RECIPE, problem, random_split(16, 9, 3), HostDevice())
    assert str(misfit.value).startswith(told)
    assert "in the kernels' indices; choose a smaller --" in str(misfit.value)
