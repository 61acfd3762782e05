"""Short runs that the oracle repeats: a stage's errors there, and those of the controls on the same images."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from common.blas import blas_threads, limit_blas_threads, worthwhile_threads
from common.oracle import FloatArray, Network, Oracle, OracleEpoch
from common.problem import Params, Problem
from common.trainer import EpochMetrics
from ladder.measure.displacement import in_chunks
from ladder.records.run import Precision
from ladder.verify.control import (
    LOWER_BITS,
    ROUNDINGS,
    Control,
    Draw,
    Flipping,
    InOrder,
    Rounding,
    addends_repeat,
    beyond_rounding,
)

MOST_DRAWS, FEWEST_DRAWS, LONG_STEPS = 16, 2, 16  # half of the draws for runs of more steps, which average more
# Below float32, a unit that flips early carries a long run far away, in few draws: with 8 of them, 3 of 100 correct
# runs in float16 were beyond the limit.
COARSE_DRAWS = 64
# Units of a batch that rounding may flip, of which each is tried; half of its error, as limits are four times the
# controls' or more: two of them may flip.
MOST_CORNERS, CORNER_SHARE = 16, 0.5
BLOCKS = (1, 4, 16)  # images whose products are summed before a sum in order is rounded
DRAWN_WORK = 20_000_000_000  # multiplications of all draws together, likewise beyond the fewest
DRAWN_PARAMETERS = 5_000_000  # in all draws together; in a wide network, many parameters stand for many draws
STACKED = 1 << 18  # parameters, or outputs of a layer, of all controls that train at once: they stay in a core's cache


@dataclass(frozen=True)
class Errors:
    """The relative errors of an update, and of the metrics of its last epoch."""

    tensors: dict[str, float]
    """||dW - dW_ref|| / ||dW_ref|| by tensor."""
    scale: float
    """|<dW, dW_ref> / ||dW_ref||^2 - 1| over all tensors."""
    factor: float = math.nan
    """<dW, dW_ref> / ||dW_ref||^2 over all tensors; NaN if that explains less than half of what they are apart."""
    loss: float = 0.0
    accuracy: float = 0.0
    """Absolute."""
    lower: dict[int, float] = field(default_factory=dict)
    """The shares of lower precisions' errors in the last weights, by bits."""
    factors: dict[str, float] = field(default_factory=dict)
    """<dW, dW_ref> / ||dW_ref||^2 by tensor: 1 is right, 0 has not moved, -1 has moved the opposite way."""


class ShortRun:
    """Some epochs on the first batches from given parameters: by the oracle, and by controls when they are needed."""

    def __init__(
        self,
        problem: Problem,
        batches: int,
        initial: Params,
        images: NDArray[np.uint8],
        labels: NDArray[np.uint8],
        *,
        epochs: int = 1,
        draws: int | None = None,
    ) -> None:
        """Train on the first `batches` batches of images (N, I) and labels (N,).

        At most `draws` controls are made; by default as many as the run's length and the precision ask for.
        """
        seen = batches * problem.batch_size
        self.problem, self.batches, self.epochs, self.initial = problem, batches, epochs, initial
        self._draws = draws
        self._images, self._labels = images[:seen], labels[:seen]
        self.oracle = Oracle(problem, initial)
        (self.reference,) = self._trained(self.oracle)
        """Loss and accuracy of the last epoch."""
        self._lower: dict[int, FloatArray] = {}
        self._spreads: dict[Precision, Errors] = {}
        self._in_order: list[tuple[Network, OracleEpoch]] | None = None
        self._adding_in_order = Lock()

    @property
    def images(self) -> int:
        """Images of an epoch."""
        return self.batches * self.problem.batch_size

    @np.errstate(all="ignore")  # what is not finite fails its checks
    def _trained(self, oracle: Oracle) -> list[OracleEpoch]:
        with limit_blas_threads(worthwhile_threads(self.problem.multiplications, blas_threads() or 1)):
            return [oracle.run_epochs(self._images, self._labels) for _ in range(self.epochs)][-1]

    @np.errstate(all="ignore")
    def errors(self, updated: Params | Network, metrics: EpochMetrics | OracleEpoch | None, below: int = 0) -> Errors:
        """The errors of these parameters and metrics; infinite where an update is not zero and the oracle's is.

        With `below`, the bits of a precision, includes the share of the errors of all lower ones.
        """
        along = length = noise = apart = 0.0
        tensors, factors = {}, {}
        for name, tensor in self._tensors(updated):
            distance = size = excess = 0.0
            for start, end, aim in in_chunks(*tensor):
                update, wanted = end - start, aim - start
                rest = update - wanted
                distance += float(rest @ rest)
                size += float(wanted @ wanted)
                along += (part := float(rest @ wanted))
                noise += part**2
                excess += part
            tensors[name] = _ratio(math.sqrt(distance), math.sqrt(size))
            factors[name] = 1.0 + excess / size if size > 0 else math.nan
            length += size
            apart += distance
        scale = _ratio(abs(along), length)
        factor = 1.0 + along / length if length > 0 and 2 * along**2 >= apart * length else math.nan
        if isinstance(updated, Network):  # a few draws may cancel by chance; the many parts of a large network do not
            scale = max(scale, _ratio(math.sqrt(noise), length))
        lower = self._shares_of_lower(updated.weights[-1], below)
        if metrics is None:
            return Errors(tensors, scale, factor, lower=lower, factors=factors)
        beyond = beyond_rounding(metrics.mean_loss, self.reference, self.problem.classes)
        loss = _ratio(beyond, abs(self.reference.mean_loss))
        return Errors(tensors, scale, factor, loss, abs(metrics.accuracy - self.reference.accuracy), lower, factors)

    def _shares_of_lower(self, weights: FloatArray, below: int) -> dict[int, float]:
        """How much of a lower precision's error the last weights show; only after one step, which no ReLU disturbs.

        Rounding is no chance: a stage that rounds factors to so many bits has the error of the control that does.
        Other errors have no part of it, however large they are.
        """
        if self.batches * self.epochs > 1:
            return {}
        error = (weights.astype(np.float64) - self.oracle.weights[-1]).ravel()
        shares = {}
        for bits in (bits for bits in LOWER_BITS if bits < below):
            if bits not in self._lower:
                control = Control(self.problem, self.initial, [Draw(Rounding(bits, products=False), 0)])
                self._trained(control)
                self._lower[bits] = (control.weights[-1][0] - self.oracle.weights[-1]).ravel()
            known = self._lower[bits]
            shares[bits] = abs(_ratio(float(error @ known), float(known @ known)))
        return shares

    def spread(self, precision: Precision) -> Errors:
        """The largest errors of the controls in a precision."""
        if precision not in self._spreads:
            parameters = sum(layer.fan_in * layer.fan_out for layer in self.problem.layers)
            work = parameters * self.images * self.epochs
            draws = min(self._most_draws(precision), DRAWN_PARAMETERS // parameters, DRAWN_WORK // work)
            draws = max(FEWEST_DRAWS, draws)
            seen = [
                *self._control_errors([Draw(ROUNDINGS[precision], number) for number in range(draws)]),
                *self._errors_in_order(ROUNDINGS[precision].bits),
                *self._errors_at_corners(ROUNDINGS[precision].bits),
            ]
            self._spreads[precision] = Errors(
                {name: largest(one.tensors[name] for one in seen) for name in seen[0].tensors},
                largest(one.scale for one in seen),
                loss=largest(one.loss for one in seen),
                accuracy=largest(one.accuracy for one in seen),
                lower={bits: largest(one.lower[bits] for one in seen) for bits in seen[0].lower},
            )
        return self._spreads[precision]

    def _control_errors(self, draws: Sequence[Draw]) -> Iterator[Errors]:
        """The errors of a control in each of these draws; small networks train side by side."""
        largest_tensor = max(
            max(layer.fan_in, self.problem.batch_size) * layer.fan_out for layer in self.problem.layers
        )
        at_once = max(1, STACKED // largest_tensor)
        for begin in range(0, len(draws), at_once):
            some = draws[begin : begin + at_once]
            control = Control(self.problem, self.initial, some)
            metrics = self._trained(control)
            for draw, network, seen in zip(some, control.networks(), metrics, strict=True):
                yield self.errors(network, seen, draw.rounding.bits)

    def _errors_in_order(self, bits: int) -> Iterator[Errors]:
        """The errors of sums in order, if their addends repeat."""
        with self._adding_in_order:  # threads ask for several precisions at once
            if self._in_order is None:
                self._in_order = list(self._trained_in_order())
        return (self.errors(network, seen, bits) for network, seen in self._in_order)

    def _trained_in_order(self) -> Iterator[tuple[Network, OracleEpoch]]:
        """What float32 makes of sums in order, whatever factors are rounded to."""
        size = self.problem.batch_size
        if not addends_repeat(self.initial, self._images[:size]):
            return
        for block in (images for images in BLOCKS if images < size):
            for begins_with_parameter in (False, True):
                run = InOrder(self.problem, self.initial, block, begins_with_parameter=begins_with_parameter)
                (seen,) = self._trained(run)
                yield Network(run.weights, run.biases), seen

    def _errors_at_corners(self, bits: int) -> Iterator[Errors]:
        """The errors of runs in which one of a few units at its corner flips; of many, the draws flip some."""
        if self.batches * self.epochs > LONG_STEPS:
            return
        first = slice(self.problem.batch_size)
        corners = [*Flipping.corners(self.problem, self.initial, self._images[first], self._labels[first], bits)]
        for flipped in corners if len(corners) <= MOST_CORNERS else []:
            run = Flipping(self.problem, self.initial, flipped)
            (seen,) = self._trained(run)
            found = self.errors(Network(run.weights, run.biases), seen, bits)
            tensors = {name: CORNER_SHARE * error for name, error in found.tensors.items()}
            yield replace(found, tensors=tensors, scale=CORNER_SHARE * found.scale)

    def _most_draws(self, precision: Precision) -> int:
        steps = self.batches * self.epochs
        most = draws_of(steps) if steps <= LONG_STEPS or precision == "float32" else COARSE_DRAWS
        return most if self._draws is None else min(self._draws, most)

    def _tensors(self, updated: Params | Network) -> Iterator[tuple[str, tuple[FloatArray, FloatArray, FloatArray]]]:
        """Every tensor's name, and its values before, after, and after the oracle's training."""
        for index in range(len(self.problem.layers)):
            for kind, *tensors in (
                ("weight", self.initial.weights, updated.weights, self.oracle.weights),
                ("bias", self.initial.biases, updated.biases, self.oracle.biases),
            ):
                before, after, target = (tensor[index] for tensor in tensors)
                yield f"{kind}[{index}]", (before, after, target)


def draws_of(steps: int) -> int:
    """As many draws as say enough of a run of so many steps in float32."""
    return MOST_DRAWS if steps <= LONG_STEPS else MOST_DRAWS // 2


def largest(errors: Iterable[float]) -> float:
    """The largest error; NaN if any is NaN."""
    return float(np.max(np.array(list(errors))))


def _ratio(error: float, size: float) -> float:
    if size > 0 or math.isnan(error):
        return error / size if size > 0 else math.nan
    return 0.0 if error == 0 else math.inf if error > 0 else math.nan
