"""The oracle on another array module: the same as NumPy's, and an error in it is seen."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from common.data.dataset import Split
from common.errors import UsageError
from common.oracle import Oracle, evaluate_all, host, product
from common.problem import initial_params
from ladder.verify.agreement import verify_agreement
from ladder.verify.control import ROUNDINGS, Control, Draw
from ladder.verify.oracle_runs import Task, compute
from tests.common.strict_arrays import StrictArray, StrictModule
from tests.ladder.harness import small_dataset, small_problem

SPLITS = small_dataset().train, small_dataset().test
HIDDEN = [(), (16,), (12, 8)]
CONTROLS = [*(Task(0, "float32", draw) for draw in range(3)), Task(0, "tf32", 2), Task(0, "bfloat16", 3)]


@pytest.mark.parametrize("hidden", HIDDEN)
@pytest.mark.parametrize("tasks", [[Task(0), Task(1)], CONTROLS], ids=["oracle", "controls"])
def test_another_array_module_trains_the_same(hidden: tuple[int, ...], tasks: list[Task], tmp_path: Path) -> None:
    small_dataset().save(tmp_path)
    problem = small_problem(hidden=hidden, batch_size=16)
    numpys = compute(problem, tmp_path, tasks, 60.0)
    others = compute(problem, tmp_path, tasks, 60.0, xp=StrictModule())
    for task in tasks:
        assert others[task].epochs == numpys[task].epochs
        assert others[task].parts == numpys[task].parts
        assert others[task].tested == numpys[task].tested
        for one, own in zip(numpys[task].displacements, others[task].displacements, strict=True):
            assert (own.distance, own.retained) == pytest.approx((one.distance, one.retained), rel=1e-12)


@pytest.mark.parametrize("hidden", HIDDEN)
def test_an_epoch_waits_for_its_losses_alone(hidden: tuple[int, ...]) -> None:
    train, xp = small_dataset().train, StrictModule()
    images, labels = xp.asarray(train.images), xp.asarray(train.labels)
    problem = small_problem(hidden=hidden, batch_size=16)
    oracle = Oracle(problem, [initial_params(problem, run) for run in range(2)], xp=xp)
    control = Control(problem, initial_params(problem, 0), [Draw(ROUNDINGS["float16"], 1)], xp)
    for trained in (oracle, control):
        StrictArray.waits = 0
        trained.run_epochs(images, labels)
        assert StrictArray.waits == 1  # once an epoch, for losses and right answers together
    StrictArray.waits = 0
    evaluate_all(oracle.weights, oracle.biases, images, labels, xp)
    assert StrictArray.waits == 1


@pytest.mark.parametrize("terms", [1, 2])
@pytest.mark.parametrize("stack", [(), (3,)], ids=["shared", "stacked"])
def test_products_of_one_term_are_those_of_blas(terms: int, stack: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    left, right = rng.random((*stack, 4, terms)), rng.random((3, terms, 5))
    np.testing.assert_allclose(product(left, right), left @ right, rtol=1e-15)


class Frozen(StrictModule):
    """Repeats a method as a graph does, to which numbers that are no arrays stay those of the first call."""

    def repeated(self, function: Any) -> Any:
        call, first, owner = super().repeated(function), dict[str, int](), vars(function.__self__)

        def frozen(*arrays: StrictArray) -> None:
            now = {name: value for name, value in owner.items() if isinstance(value, int)}
            owner.update(first or now)
            first.update(now if not first else {})
            call(*arrays)
            owner.update(now)

        return frozen


@pytest.mark.parametrize("hidden", HIDDEN)
def test_a_repeated_step_draws_other_numbers_each_time(hidden: tuple[int, ...]) -> None:
    train, problem = small_dataset().train, small_problem(hidden=hidden, batch_size=16)
    draws, params = [Draw(ROUNDINGS["float32"], number) for number in range(4)], initial_params(problem, 0)
    numpys, other = (Control(problem, params, draws, xp) for xp in (np, Frozen()))
    seen = numpys.run_epochs(train.images, train.labels)
    assert other.run_epochs(*map(Frozen().asarray, (train.images, train.labels))) == seen
    for one, own in zip((*numpys.weights, *numpys.biases), (*other.weights, *other.biases), strict=True):
        assert np.array_equal(one, host(own))


class Broken(StrictModule):
    """A product in the precision of a careless setting."""

    def __init__(self, bits: int) -> None:
        self._bits = bits

    def matmul(self, left: StrictArray, right: StrictArray) -> Any:
        mantissa, exponent = np.frexp(left.held @ right.held)
        product = np.ldexp(np.round(np.ldexp(mantissa, self._bits)), exponent - self._bits)
        return StrictArray(product.astype(left.held.dtype))


@pytest.mark.parametrize(
    ("hidden", "bits", "differs"), [((), 53, False), ((12, 8), 50, False), ((16,), 24, True), ((), 11, True)]
)
def test_an_oracle_with_less_than_float64_ends_the_run(hidden: tuple[int, ...], bits: int, differs: bool) -> None:
    problem, xp = small_problem(hidden=hidden, batch_size=16), Broken(bits)
    oracle = Oracle(problem, [initial_params(problem, run) for run in range(2)], xp=xp)
    if differs:
        with pytest.raises(
            UsageError, match=r"oracle on the GPU is not NumPy's: an update differs .*LADDER_ORACLE=numpy"
        ):
            verify_agreement(oracle, *SPLITS)
    else:
        verify_agreement(oracle, *SPLITS)


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize(("hidden", "bits", "differs"), [((12, 8), 24, False), ((), 8, True), ((16,), 8, True)])
def test_a_control_too_coarse_ends_the_run(hidden: tuple[int, ...], bits: int, differs: bool, known: bool) -> None:
    problem = small_problem(hidden=hidden, batch_size=16)
    exact = Oracle(problem, [initial_params(problem, 0)])
    exact.run_epochs(SPLITS[0].images[:48], SPLITS[0].labels[:48])
    ends = exact.networks()[0] if known else None
    draws = [Draw(ROUNDINGS[precision], 1) for precision in ("tf32", "float16")]
    control = Control(problem, initial_params(problem, 0), draws, Broken(bits))
    if differs:
        with pytest.raises(UsageError, match="a control differs"):
            verify_agreement(control, *SPLITS, ends)
    else:
        verify_agreement(control, *SPLITS, ends)


class Crossing(StrictModule):
    """Of some steps' first products, one output has crossed its ReLU's corner."""

    def __init__(self, steps: int) -> None:
        self._left = 4 * steps  # products of a step with one hidden layer, less one

    def matmul(self, left: StrictArray, right: StrictArray) -> Any:
        product = left.held @ right.held
        if self._left % 4 == 0 and self._left > 0:
            product.reshape(-1)[product.argmax()] *= -1
        self._left -= 1
        return StrictArray(product)


@pytest.mark.parametrize(("steps", "differs"), [(0, False), (3, False), (100, True)])
def test_a_control_that_crosses_a_corner_is_tried_again(steps: int, differs: bool) -> None:
    problem = small_problem(hidden=(16,), batch_size=16)
    control = Control(problem, initial_params(problem, 0), [Draw(ROUNDINGS["float32"], 0)], Crossing(steps))
    with pytest.raises(UsageError, match="a control differs") if differs else nullcontext():
        verify_agreement(control, *SPLITS)


class InOrder(StrictModule):
    """Products whose terms are added in float32 one after the other; a library on the CPU adds them in blocks."""

    def matmul(self, left: StrictArray, right: StrictArray) -> Any:
        sums = np.zeros((*left.held.shape[:-1], right.held.shape[-1]), left.held.dtype)
        for term in range(left.held.shape[-1]):
            sums += left.held[..., term : term + 1] * right.held[..., term : term + 1, :]
        return StrictArray(sums)


def test_a_control_may_add_a_large_batch_in_another_order() -> None:
    images, labels = np.tile(SPLITS[0].images, (64, 1)), np.tile(SPLITS[0].labels, 64)
    train = Split(images, labels)
    problem = small_problem(batch_size=len(images), learning_rate=0.01)
    control = Control(problem, initial_params(problem, 0), [Draw(ROUNDINGS["float32"], 2)], InOrder())
    verify_agreement(control, train, train)


def test_the_agreement_leaves_a_run_as_it_was() -> None:
    problem, xp = small_problem(hidden=(12,), batch_size=16), StrictModule()
    control = Control(problem, initial_params(problem, 0), [Draw(ROUNDINGS["float16"], 1)], xp)
    before = [host(tensor) for tensor in (*control.weights, *control.biases)]
    verify_agreement(control, *SPLITS)
    after = [host(tensor) for tensor in (*control.weights, *control.biases)]
    assert all(np.array_equal(a, b) for a, b in zip(before, after, strict=True))
