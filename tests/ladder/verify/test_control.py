"""The random numbers of a control are those of names, whatever the order in which a step asks for them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from common.oracle import FloatArray, Name
from common.problem import Params, Problem, initial_params
from ladder.verify.control import NOISES, ROUNDINGS, Control, Draw

PROBLEM = Problem(inputs=6, classes=3, hidden=(5, 4), batch_size=8)
OF_A_STEP = (
    ("outputs", 0), ("outputs", 1), ("outputs", 2),
    ("dinput", 2), ("dweight", 2), ("weight", 2), ("dbias", 2), ("bias", 2),
    ("dinput", 1), ("dweight", 1), ("weight", 1), ("dbias", 1), ("bias", 1),
    ("dweight", 0), ("weight", 0), ("dbias", 0), ("bias", 0),
)  # fmt: skip
OF_ROUNDING = tuple((kind, layer) for layer in (2, 1, 0) for kind in ("weight", "bias"))


class Noting(Control):
    """One that notes which names have drawn, and what."""

    def _drawn(self, name: Name, tensor: FloatArray) -> FloatArray:
        drawn = super()._drawn(name, tensor)
        begin = drawn.__array_interface__["data"][0] - self._noise.__array_interface__["data"][0]
        self.noted = {**getattr(self, "noted", {}), (self._steps, *name): begin // drawn.itemsize}
        return drawn


@pytest.mark.parametrize(
    ("sums", "names", "steps"), [(True, OF_A_STEP, range(17)), (False, OF_ROUNDING, range(1, 18, 8))]
)
def test_each_name_of_a_step_has_the_numbers_that_it_always_had(
    sums: bool, names: tuple[Name, ...], steps: range
) -> None:
    """Recorded limits are those of these numbers: a new hook of the oracle must not change them."""
    control = Noting(PROBLEM, initial_params(PROBLEM, 0), [Draw(replace(ROUNDINGS["float32"], sums=sums), 1)])
    random = np.random.default_rng(0)
    control.run_epochs(random.integers(0, 256, (17 * 8, 6), np.uint8), random.integers(0, 3, 17 * 8, np.uint8))
    order = [(step, *name) for step in steps for name in names]
    places = range(1, len(names) + 1) if sums else range(1, len(order) + 1)
    begins = {step: 5003 * step % NOISES if sums else 0 for step in steps}
    wanted = [begins[step] + 7919 * place % NOISES for (step, *_), place in zip(order, [*places] * 17, strict=False)]
    assert control.noted == dict(zip(order, wanted, strict=True))


@pytest.mark.parametrize(
    ("size", "lead", "close"),
    [(1.0, 0.0, True), (1.0, 2e-7, True), (1.0, 1e-5, False), (1e-6, 1e-9, True), (1e-6, 1e-7, False)],
    ids=["equal", "by a rounding", "clearly", "by an update's rounding", "clearly for an update"],
)
def test_an_answer_that_is_close_is_right_for_one_draw_and_wrong_for_the_next(
    size: float, lead: float, close: bool
) -> None:
    problem = Problem(inputs=6, classes=3, batch_size=8, learning_rate=0.01)
    biases = (np.array([size, size + lead, 0.0], np.float32),)
    control = Control(
        problem, Params((np.zeros((6, 3), np.float32),), biases), [Draw(ROUNDINGS["float32"], n) for n in (1, 2)]
    )
    seen = control.run_epochs(np.zeros((8, 6), np.uint8), np.array([0, 1] * 4, np.uint8))
    assert [one.accuracy for one in seen] == ([1.0, 0.0] if close else [0.5, 0.5])


def test_logits_of_zero_have_no_close_answer() -> None:
    problem = Problem(inputs=6, classes=3, batch_size=8)
    zeros = Params((np.zeros((6, 3), np.float32),), (np.zeros(3, np.float32),))
    control = Control(problem, zeros, [Draw(ROUNDINGS["float32"], n) for n in (1, 2)])
    seen = control.run_epochs(np.zeros((8, 6), np.uint8), np.array([0, 1] * 4, np.uint8))
    assert [one.accuracy for one in seen] == [0.5, 0.5]
