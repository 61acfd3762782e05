"""The random numbers of a control are those of names, whatever the order in which a step asks for them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from common.oracle import FloatArray, Name
from common.problem import Problem, initial_params
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
