"""Controls: the oracle again, with the rounding that a precision permits. Their distance from it sets every limit.

A correct stage differs from the float64 oracle by rounding alone, and by what the network makes of it: that depends on
the batch, the learning rate, the layers, and on units that happen to lie at their ReLU's corner. A control trains on
the same images from the same parameters and meets all of it. docs/statistics.md derives the amounts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from common.oracle import FloatArray, Oracle
from common.problem import Params, Problem
from ladder.records.run import Precision

FLOAT32_ROUNDING = np.float32(2.0**-24)  # half a unit in the last place, relative
ROUNDING_OF_A_SUM = 0.42  # standard deviation, in half units in the last place of a mantissa from 1 to 2
# A sum of n products, one after the other, rounds each partial sum. With random signs, their roundings add up to this
# share of |a| |b|; with equal signs, to this share of sqrt(n) times the sum.
ROUNDING_OF_RANDOM_SIGNS = 0.3
ROUNDING_OF_EQUAL_SIGNS = 0.25
# Exponentials and quotients are off by this many roundings for all images alike. Softmax cannot tell a common shift of
# all biases, so nothing corrects it.
PROBABILITY_ROUNDINGS = 2
NOISES = 1 << 16  # random numbers, used again and again: drawing more would take longer than training


@dataclass(frozen=True)
class Rounding:
    """How a precision rounds: to `bits` bits of mantissa, the leading one included, and what else may do so."""

    bits: int
    products: bool = True  # products may be stored in the precision too, as autocast does, and not only factors
    sums: bool = False  # partial sums have no more than float32's bits to spare


ROUNDINGS: dict[Precision, Rounding] = {
    "float32": Rounding(21, products=False, sums=True),  # a factor in two parts on tensor cores keeps 22 bits
    "tf32": Rounding(11, products=False),
    "float16": Rounding(11),
    "bfloat16": Rounding(8),
}


LOWER_BITS = (17, 16, 11, 8)
"""Formats that a stage may use by mistake: a float32 in two parts of bfloat16, and the tensor cores' formats."""


class Control(Oracle):
    """The oracle in float32, with one draw of a precision's rounding.

    Draws place the grid of representable numbers differently; number 0 rounds as the format does. Every second one
    stores products in low precision, adds the images' updates to the parameters one by one, and passes a gradient
    through a ReLU at zero, as cuBLASLt does.
    """

    def __init__(self, problem: Problem, params: Params, rounding: Rounding, draw: int) -> None:
        super().__init__(problem, params, np.float32)
        self._grid = np.float32(1.0 if draw == 0 else 2.0 ** np.random.default_rng(draw).random())
        self._split = np.float32(2.0 ** (24 - rounding.bits) + 1.0)
        self._rounds_products = rounding.products and draw % 2 == 1
        self._passes_at_zero = draw % 2 == 1
        self._noise, self._at, self._rounds_sums = _noise(draw), 0, rounding.sums
        # In a short run at every step, in a long one at every eighth, for the time's sake.
        self._every, self._steps = 1 if rounding.sums or problem.batch_size == 1 else 8, 0
        more = (problem.batch_size - 1) * self._every if draw % 2 == 1 else 0
        self._loses_small_updates = rounding.sums and draw % 4 == 3
        self._more_roundings = np.float32(ROUNDING_OF_A_SUM * more**0.5)
        self._probability = np.float32(1.0 + (-1) ** (draw // 2) * PROBABILITY_ROUNDINGS * FLOAT32_ROUNDING)

    def _probabilities(self, exact: FloatArray) -> FloatArray:
        return exact * self._probability

    def _passes(self, outputs: FloatArray) -> NDArray[np.bool_]:
        return outputs >= 0.0 if self._passes_at_zero else super()._passes(outputs)

    def _factor(self, exact: FloatArray) -> FloatArray:
        # T. J. Dekker, A floating-point technique for extending the available precision, 1971.
        scaled = exact * self._grid
        rounded = scaled * self._split
        scaled -= rounded
        rounded += scaled
        rounded /= self._grid
        return rounded

    def _product(self, left: FloatArray, right: FloatArray) -> FloatArray:
        product: FloatArray = left @ right
        if self._rounds_sums:
            rows, columns = np.einsum("ik,ik->i", left, left), np.einsum("kj,kj->j", right, right)
            self._round_sums(product, np.sqrt(rows)[:, None] * np.sqrt(columns), left.shape[1])
        return self._factor(product) if self._rounds_products else product

    def _column_sums(self, terms: FloatArray) -> FloatArray:
        sums: FloatArray = terms.sum(axis=0)
        if self._rounds_sums:
            self._round_sums(sums, np.sqrt(len(terms) * np.einsum("ij,ij->j", terms, terms)), len(terms))
        return self._factor(sums) if self._rounds_products else sums

    def _round_sums(self, sums: FloatArray, sizes: FloatArray, terms: int) -> None:
        """Add the rounding of partial sums to sums of this many terms, whose factors' norms are `sizes`, multiplied."""
        sums += self._drawn(sums.shape) * (
            ROUNDING_OF_RANDOM_SIGNS * sizes + ROUNDING_OF_EQUAL_SIGNS * terms**0.5 * np.abs(sums)
        )

    def _step(self, images: FloatArray, labels: NDArray[np.intp]) -> tuple[float, int]:
        self._steps += 1
        return super()._step(images, labels)

    def _subtract(self, parameters: FloatArray, update: FloatArray) -> None:
        if self._loses_small_updates:
            # An image's update below half a unit in the last place is lost, alike for all images.
            unit = self.problem.batch_size * np.spacing(np.abs(parameters))
            update = np.where(np.abs(update) < 1e6 * unit, np.rint(update / unit) * unit, update)
            parameters -= update
            return
        parameters -= update
        if self._more_roundings and self._steps % self._every == 1 % self._every:
            parameters += self._drawn(parameters.shape) * (self._more_roundings * np.abs(parameters))

    def _drawn(self, shape: tuple[int, ...]) -> FloatArray:
        """Random numbers with a standard deviation of one rounding of float32."""
        self._at = (self._at + 7919) % NOISES
        table, size = self._noise[self._at :], math.prod(shape)
        return np.resize(table[:NOISES], shape) if size > NOISES else table[:size].reshape(shape)


@cache
def _noise(draw: int) -> FloatArray:
    return np.random.default_rng((draw, 1)).standard_normal(2 * NOISES, np.float32) * FLOAT32_ROUNDING
