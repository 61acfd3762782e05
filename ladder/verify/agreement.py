"""The judge is judged: some steps of an oracle that another array module trains are repeated with NumPy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from common.data.dataset import Split
from common.errors import UsageError
from common.oracle import Network, Oracle, OracleEpoch, evaluate_all
from ladder.measure.displacement import dot, squared_distance, summed
from ladder.verify.control import Control

STEPS = 3
SHIFTS = (0, 101, 211, 307)  # of pixels, so that other outputs lie near a corner
WIDE = 20_000_000  # parameters of all networks, of which NumPy repeats one step alone
TESTED_IMAGES = 1000
# Sums in another order differ by some roundings of float64, 2**-53 of an update; one factor in float32 by 2**-26.
UPDATE_LIMIT = 2.0**-36
PARAMETERS_LIMIT = 2.0**-48  # of the parameters: each update rounds them, and a small one is no larger than that
FLOAT32_ROUNDING = 2.0**-24
CONTROL_ROUNDINGS = 16  # of the update; and sums of n terms in another order differ by some sqrt(n)
WAY_OUT = "set LADDER_ORACLE=numpy to train without the GPU, and please report this"


def verify_agreement(oracle: Oracle, train: Split, test: Split, exact: Network | None = None) -> None:
    """Repeat some steps from the current parameters with NumPy, and put these back; raises UsageError if they differ.

    In float64, updates, losses and the loss on test images agree but for rounding. A control's rounding is its own
    matter: it has to be nearer to the same control of NumPy than that is to float64. Of 200,000 outputs of a step in
    float32, one may lie so near its ReLU's corner that the order of a sum decides: so a control that differs is tried
    again on shifted pixels, and has to agree once. `exact` is where float64 comes to, if all controls begin alike.
    """
    steps = 1 if is_wide(oracle) else STEPS
    size = min(steps * oracle.problem.batch_size, len(train.images))
    images, labels = train.images[:size], train.labels[:size]
    if not isinstance(oracle, Control):
        _verify_float64(oracle, images, labels, test.first(TESTED_IMAGES))
        return
    differing = list(range(len(oracle.biases[0])))
    for shift in SHIFTS:
        found = _compared(oracle, np.roll(images, shift, axis=1), labels, None if shift else exact)
        differing = [number for number in differing if not _is_within(*found[number])]
        if not differing:
            return
    _require("a control", *found[differing[0]])


def _verify_float64(oracle: Oracle, images: NDArray[np.uint8], labels: NDArray[np.uint8], test: Split) -> None:
    start, twin, ends, seen, expected = _repeated(oracle, images, labels)
    for before, own, numpys in zip(*(one.networks() for one in (start, ends, twin)), strict=True):
        limit = UPDATE_LIMIT * _distance(numpys, before) + PARAMETERS_LIMIT * _size(numpys)
        _require("an update", _distance(own, numpys), limit)
    _require_losses("a loss", seen, expected)
    xp = oracle.xp
    tested = evaluate_all(oracle.weights, oracle.biases, xp.asarray(test.images), xp.asarray(test.labels), xp)
    _require_losses("a test loss", tested, evaluate_all(start.weights, start.biases, test.images, test.labels))


def _compared(
    control: Control, images: NDArray[np.uint8], labels: NDArray[np.uint8], exact: Network | None
) -> list[tuple[float, float]]:
    """How far each control of a stack is from NumPy's, and how far it may be."""
    start, twin, ends, *_ = _repeated(control, images, labels)
    if exact is None:
        oracle = Oracle(control.problem, start.networks())
        oracle.run_epochs(images, labels)
    aims = oracle.networks() if exact is None else [exact] * len(start.biases[0])
    longest = max(control.problem.batch_size, *(layer.fan_in for layer in control.problem.layers))
    floor = FLOAT32_ROUNDING * (CONTROL_ROUNDINGS + 2 * math.sqrt(longest))
    return [
        (
            _distance(own, numpys),
            _distance(numpys, aim) + floor * _distance(aim, before) + 2 * FLOAT32_ROUNDING * _size(numpys),
        )
        for before, own, numpys, aim in zip(*(one.networks() for one in (start, ends, twin)), aims, strict=True)
    ]


class _Repeated(NamedTuple):
    """Steps by a module and by NumPy, with NumPy's arrays."""

    start: Oracle
    numpys: Oracle
    own: Oracle
    own_losses: Sequence[OracleEpoch]
    numpys_losses: Sequence[OracleEpoch]


def _repeated(oracle: Oracle, images: NDArray[np.uint8], labels: NDArray[np.uint8]) -> _Repeated:
    xp, start = oracle.xp, oracle.on(np)
    twin = start.on(np)
    with np.errstate(all="ignore"):
        expected = twin.run_epochs(images, labels)
    seen = oracle.run_epochs(xp.asarray(images), xp.asarray(labels))
    ends = oracle.on(np)
    oracle.load(start)
    return _Repeated(start, twin, ends, seen, expected)


def is_wide(oracle: Oracle) -> bool:
    """Whether NumPy takes long to repeat a step."""
    return sum(weight.size for weight in oracle.weights) > WIDE


def _require_losses(what: str, own: Sequence[OracleEpoch], numpys: Sequence[OracleEpoch]) -> None:
    for epoch, other in zip(own, numpys, strict=True):
        _require(what, abs(epoch.mean_loss - other.mean_loss), UPDATE_LIMIT * max(1.0, abs(other.mean_loss)))


def _require(what: str, difference: float, limit: float) -> None:
    """Raise UsageError unless the difference is within its limit; where NumPy diverges, there is nothing to compare."""
    if not _is_within(difference, limit):
        message = f"{what} differs by {difference:.2g}, and rounding explains {limit:.2g}"
        raise UsageError(f"the float64 oracle on the GPU is not NumPy's: {message}; {WAY_OUT}")


def _is_within(difference: float, limit: float) -> bool:
    return difference <= limit or not math.isfinite(limit)


def _distance(network: Network, other: Network) -> float:
    pairs = zip((*network.weights, *network.biases), (*other.weights, *other.biases), strict=True)
    return math.sqrt(sum(summed(lambda a, b: [squared_distance(a, b)], *tensors)[0] for tensors in pairs))


def _size(network: Network) -> float:
    return math.sqrt(sum(summed(lambda a: [dot(a, a)], t)[0] for t in (*network.weights, *network.biases)))
