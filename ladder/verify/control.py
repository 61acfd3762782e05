"""Controls: the oracle again, with the rounding that a precision permits. Their distance from it sets every limit.

A correct stage differs from the float64 oracle by rounding alone, and by what the network makes of it: that depends on
the batch, the learning rate, the layers, and on units that happen to lie at their ReLU's corner. A control trains on
the same images from the same parameters and meets all of it. docs/statistics.md derives the amounts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, Literal, NamedTuple, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from common.oracle import FloatArray, Name, Oracle, OracleEpoch, host
from common.problem import Params, Problem
from ladder.records.run import Precision

Array = TypeVar("Array", bound=NDArray[Any])

FLOAT32_ROUNDING = np.float32(2.0**-24)  # half a unit in the last place, relative
ROUNDING_OF_A_SUM = 0.42  # standard deviation, in half units in the last place of a mantissa from 1 to 2
# A sum of n products, one after the other, rounds each partial sum. With random signs, their roundings add up to this
# share of |a| |b|; with equal signs, to this share of sqrt(n) times the sum.
ROUNDING_OF_RANDOM_SIGNS = 0.3
ROUNDING_OF_EQUAL_SIGNS = 0.25
# Exponentials and quotients are off by this many roundings for all images alike. Softmax cannot tell a common shift of
# all biases, so nothing corrects it.
PROBABILITY_ROUNDINGS = 2
# An output may flip that is so many times 2^-bits of the norm of its terms from its ReLU's corner. Rounded factors are
# off by 0.42 of that; so are parts of sums in messages, by 0.69 together, and by more than 6 in one of 100,000 sums.
CORNER_ROUNDINGS = 8.0
# Rounding may change an answer that is clearer by no more than this share of the image's largest logit, or of an update
# by errors of 1, which may cancel.
CLOSE_ANSWERS = 8 * 2.0**-21
LEAST_UNIT = 1e-30  # of a parameter of zero: an update in such units still fits into float32
ADDED_AT_ONCE = 7  # products: NumPy adds so few up one after the other, however they lie in memory
NOISES = 1 << 16  # random numbers, used again and again: drawing more would take longer than training
STRIDE = 5003  # from where a step's begin to where the next one's do
MOST_REPEATED = 1 << 22  # weights of a stack; more keep a GPU busy by themselves, and a repetition keeps its memory


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

LOWER_BITS = (17, 16, 11, 8, 7, 6)
"""Formats that a stage may use by mistake: float32 in two parts of bfloat16, the tensor cores' formats, and one or two
bits less than bfloat16. What has still fewer bits shows by its size."""


class Draw(NamedTuple):
    """One placement of a precision's grid of representable numbers; number 0 rounds as the format does."""

    rounding: Rounding
    number: int


class Control(Oracle):
    """A stack of oracles in float32 from the same parameters, each with one draw of a precision's rounding.

    Every second draw stores products in low precision, adds the images' updates to the parameters one by one, and
    passes a gradient through a ReLU at zero, as cuBLASLt does. It gives close answers to the label, the others do not.
    All draws of a stack round sums, or none does.
    """

    def __init__(self, problem: Problem, params: Params, draws: Sequence[Draw], xp: Any = np) -> None:
        (self._rounds_sums,) = {draw.rounding.sums for draw in draws}
        super().__init__(problem, [params] * len(draws), np.float32, xp)
        odd = [draw.number % 2 == 1 for draw in draws]
        self._grid = self._each(2.0 ** np.random.default_rng(n).random() if n else 1.0 for _, n in draws)
        self._split = self._each(2.0 ** (24 - rounding.bits) + 1.0 for rounding, _ in draws)
        self._probability = self._each(
            1.0 + (-1) ** (number // 2) * PROBABILITY_ROUNDINGS * FLOAT32_ROUNDING for _, number in draws
        )
        self._toward_labels = self._each(CLOSE_ANSWERS * (-1) ** (number + 1) for _, number in draws)
        self._passes_at_zero = self._flags(odd)
        self._rounds_products = self._flags(
            [draw.rounding.products and is_odd for draw, is_odd in zip(draws, odd, strict=True)]
        )
        bits = ROUNDINGS["float32"].bits
        losing = [draw.rounding.bits == bits and draw.number % 4 == 3 for draw in draws]
        self._loses_small_updates = self._flags(losing)
        self._unit_lost = self._each(2.0 ** -np.random.default_rng(n).random() if n > 3 else 1.0 for _, n in draws)
        # In a short run at every step, in a long one at every eighth, for the time's sake.
        self._every, self._steps = 1 if self._rounds_sums or problem.batch_size == 1 else 8, 0
        more = ROUNDING_OF_A_SUM * ((problem.batch_size - 1) * self._every) ** 0.5
        rounding_more = [is_odd and not loses for is_odd, loses in zip(odd, losing, strict=True)]
        self._more_roundings = self._each(more * rounds_more for rounds_more in rounding_more)
        self._rounds_more = more > 0 and any(rounding_more)
        largest = max(tensor.size for tensor in params.tensors().values())
        noises = 3 * NOISES if self._rounds_sums else NOISES + min(largest, NOISES)
        self._of_step = self._noise = xp.asarray(_noises(noises, *(draw.number for draw in draws)))
        self._places = {name: place for place, name in enumerate(self._names(), start=1)}

    def _begin(self) -> None:
        super()._begin()
        self._round_more = self._repeated(self._round_all_more)
        if self._rounds_sums:  # each step draws other numbers, which a repetition has to be given
            is_small = sum(weight.size for weight in self.weights) <= MOST_REPEATED
            train = self._repeated(self._train_by) if is_small else self._train_by
            self._train = lambda images, labels: train(images, labels, self._noise_from(self._steps * STRIDE % NOISES))

    def _names(self) -> Iterator[Name]:
        """All that is rounded by chance, each with random numbers of its own: a new name goes last."""
        layers = range(len(self.problem.layers))
        if self._rounds_sums:
            yield from (("outputs", layer) for layer in layers)
        for layer in reversed(layers):
            if self._rounds_sums:
                yield from [("dinput", layer)] * (layer > 0)
                yield "dweight", layer
            if self._rounds_more:
                yield "weight", layer
            if self._rounds_sums:
                yield "dbias", layer
            if self._rounds_more:
                yield "bias", layer

    def _noise_from(self, begin: int) -> FloatArray:
        numbers: FloatArray = self._noise[:, begin : begin + 2 * NOISES]
        return numbers

    def _train_by(self, images: NDArray[np.uint8], labels: NDArray[np.uint8], noise: FloatArray) -> None:
        self._of_step = noise
        self._train_on(images, labels)

    def load(self, other: Self) -> None:
        """The same, with its place among the random numbers."""
        super().load(other)
        self._steps = other._steps

    def _each(self, numbers: Iterable[float]) -> FloatArray:
        """A number of each draw (K, 1, 1), to multiply matrices with."""
        each: FloatArray = self.xp.array(np.array(list(numbers), np.float32)[:, None, None])
        return each

    def _flags(self, flags: Sequence[bool]) -> Any:
        """True or False if that holds for all draws, otherwise an array (K, 1, 1) of both."""
        return flags[0] if len(set(flags)) == 1 else self.xp.array(np.array(flags)[:, None, None])

    def _choose(self, flags: Any, where: Callable[[], Array], otherwise: Array) -> Array:
        """`where()` for the draws with a flag, and `otherwise` for the others."""
        if isinstance(flags, bool):
            return where() if flags else otherwise
        chosen: Array = self.xp.where(_fitting(flags, otherwise), where(), otherwise)
        return chosen

    def _probabilities(self, exact: FloatArray) -> FloatArray:
        return exact * self._probability

    def _passes(self, outputs: FloatArray) -> NDArray[np.bool_]:
        return self._choose(self._passes_at_zero, lambda: outputs >= 0.0, outputs > 0.0)

    def _compared(self, logits: FloatArray, is_label: NDArray[np.bool_]) -> FloatArray:
        sizes = self.xp.abs(logits).max(axis=-1, keepdims=True)
        # What is exactly zero has not been rounded.
        sizes = self.xp.where(sizes > 0.0, sizes + self.problem.learning_rate, sizes)
        compared: FloatArray = logits + self._toward_labels * sizes * is_label
        return compared

    def _factor(self, exact: FloatArray) -> FloatArray:
        # T. J. Dekker, A floating-point technique for extending the available precision, 1971.
        grid, split = _fitting(self._grid, exact), _fitting(self._split, exact)
        if hasattr(self.xp, "rounded"):
            at_once: FloatArray = self.xp.rounded(exact, grid, split)
            return at_once
        scaled = exact * grid
        rounded: FloatArray = scaled * split
        scaled -= rounded
        rounded += scaled
        rounded /= grid
        return rounded

    def _product(self, left: FloatArray, right: FloatArray, name: Name) -> FloatArray:
        product = super()._product(left, right, name)
        if self._rounds_sums:
            xp = self.xp
            rows, columns = xp.sqrt(xp.square(left).sum(axis=-1)), xp.sqrt(xp.square(right).sum(axis=-2))
            self._round_sums(product, rows[..., :, None] * columns[..., None, :], left.shape[-1], name)
        return self._choose(self._rounds_products, lambda: self._factor(product), product)

    def _column_sums(self, terms: FloatArray, name: Name) -> FloatArray:
        sums, count = super()._column_sums(terms, name), terms.shape[-2]
        if self._rounds_sums:
            xp = self.xp
            self._round_sums(sums, xp.sqrt(count * xp.square(terms).sum(axis=-2)), count, name)
        return self._choose(self._rounds_products, lambda: self._factor(sums), sums)

    def _round_sums(self, sums: FloatArray, sizes: FloatArray, terms: int, name: Name) -> None:
        """Add the rounding of partial sums to sums of this many terms, whose factors' norms are `sizes`, multiplied."""
        sums += self._spread(self._drawn(name, sums), sums) * (
            ROUNDING_OF_RANDOM_SIGNS * sizes + ROUNDING_OF_EQUAL_SIGNS * terms**0.5 * self.xp.abs(sums)
        )

    def _subtract(self, parameters: FloatArray, update: FloatArray, name: Name) -> None:
        if self._loses_small_updates is not False:
            # An image's update below half a unit in the last place is lost, alike for all images. Only the first such
            # draw has the whole unit: with one for all, by chance none of them changed a loss.
            xp, size = self.xp, self.xp.abs(parameters)
            unit = self.problem.batch_size * ((size.view(np.int32) + 1).view(np.float32) - size)  # the next float32's
            unit = xp.maximum(unit * _fitting(self._unit_lost, size), LEAST_UNIT)
            is_small = xp.abs(update) < 1e6 * unit
            rounded = xp.where(is_small, xp.rint(update / unit) * unit, update)
            update = self._choose(self._loses_small_updates, lambda: rounded, update)
        parameters -= update
        if self._rounds_more and self._every == 1:
            self._round_parameters(parameters, self._drawn(name, parameters))

    def _after_step(self) -> None:
        self._steps += 1
        if self._rounds_more and self._every > 1 and self._steps % self._every == 1:
            self._round_more(*(self._drawn(name, tensor) for name, tensor in self._named()))

    def _named(self) -> Iterator[tuple[Name, FloatArray]]:
        """All parameters."""
        for layer, tensors in enumerate(zip(self.weights, self.biases, strict=True)):
            yield from zip((("weight", layer), ("bias", layer)), tensors, strict=True)

    def _round_all_more(self, *noise: FloatArray) -> None:
        for (_, tensor), drawn in zip(self._named(), noise, strict=True):
            self._round_parameters(tensor, drawn)

    def _round_parameters(self, parameters: FloatArray, noise: FloatArray) -> None:
        """Add the roundings of a batch's other images."""
        roundings = _fitting(self._more_roundings, parameters)
        parameters += self._spread(noise, parameters) * (roundings * self.xp.abs(parameters))

    def _drawn(self, name: Name, tensor: FloatArray) -> FloatArray:
        """Random numbers (K, N) for a tensor, with a standard deviation of one rounding of float32."""
        before = 0 if self._rounds_sums else self._steps // self._every * len(self._places)
        at = 7919 * (before + self._places[name]) % NOISES
        drawn: FloatArray = self._of_step[:, at : at + min(math.prod(tensor.shape[1:]), NOISES)]
        return drawn

    def _spread(self, drawn: FloatArray, tensor: FloatArray) -> FloatArray:
        """Random numbers in a tensor's shape; more than there are begin anew."""
        size = math.prod(tensor.shape[1:])
        if size > NOISES:
            drawn = self.xp.tile(drawn, (1, -(-size // NOISES)))[:, :size]
        spread: FloatArray = drawn.reshape(tensor.shape)
        return spread


Divided = Literal["errors", "sum"]
"""What is divided by the batch's size: each image's error before they are added up, or their sum."""


class InOrder(Oracle):
    """Training in float32 that adds a gradient up `block` images after `block` images, and rounds each such sum.

    Roundings of different addends differ by chance, as a `Control` has it. Equal addends are rounded alike as long as
    their sum has the same exponent, so that these errors add up: only the sum itself tells their size. A product may
    begin with the parameter, which is large, so that little of each addend is left. Errors that are divided by the
    batch's size before they are added up round otherwise than a sum that is divided. One float32 adds up the epoch's
    losses, block by block as well, divided by the batch's size or not. Weights of more than `most` inputs are updated
    by a product, for the time's sake: so many roundings average out.
    """

    def __init__(
        self,
        problem: Problem,
        params: Params,
        block: int,
        begin: Literal["zero", "parameter"],
        divided: Divided,
        most: float = math.inf,
    ) -> None:
        super().__init__(problem, params, np.float32)
        self._block, self._begins_with_parameter, self._divided = block, begin == "parameter", divided
        self._most = most

    def _of_mean(self, doutput: FloatArray) -> FloatArray:
        return super()._of_mean(doutput) if self._divided == "errors" else doutput

    def _added_losses(self, log_sums: FloatArray, of_labels: FloatArray) -> Any:
        images = np.float32(len(log_sums) if self._divided == "errors" else 1)
        losses = _by_block(((log_sums - of_labels) / images)[:, None], self._block).sum(axis=(1, 2))
        before = np.float32(self._sums[0] / images)  # a float32 since the first batch
        after = np.add.accumulate(np.concatenate([[before], losses]), dtype=np.float32)[-1]
        return (float(after) - float(before)) * float(images)

    def _update(self, layer: int, inputs: FloatArray, doutput: FloatArray) -> None:
        rate, ones = np.float32(self.problem.learning_rate), np.ones((len(inputs), 1), np.float32)
        if self._divided == "sum":
            rate /= np.float32(len(inputs))
        for tensor, factors in ((self.weights[layer], inputs), (self.biases[layer][None, :], ones)):
            if not factors.any():  # of an epoch from zeros
                continue
            if len(tensor) > self._most:
                tensor -= rate * (factors.T @ doutput)
            elif self._begins_with_parameter:
                tensor[...] = self._added(tensor, factors, -rate * doutput)
            else:
                tensor -= rate * self._added(np.zeros_like(tensor), factors, doutput)

    def _added(self, total: FloatArray, left: FloatArray, right: FloatArray) -> FloatArray:
        """The total (I, O), to which the products of (M, I) and (M, O) are added block by block."""
        block, added = self._block, total.T
        for begin in range(0, len(left), ADDED_AT_ONCE * block):
            some = slice(begin, begin + ADDED_AT_ONCE * block)
            rows, columns = _by_block(right[some], block).swapaxes(1, 2), _by_block(left[some], block)
            terms = rows * columns if block == 1 else np.matmul(rows, columns)
            terms[0] += added
            added = terms.sum(axis=0)
        return added.T


class Corner(NamedTuple):
    """A hidden output: of a step, a layer, an image of the batch, and a unit."""

    step: int
    layer: int
    image: int
    unit: int


class Flipping(Oracle):
    """A stack of oracles, in each of which some hidden outputs lie on the other side of their ReLU's corner.

    Rounding may send one there, in so few runs that no draw shows it, and in a small network it is much of an update.
    """

    def __init__(self, problem: Problem, params: Params, flipped: Sequence[Collection[Corner]], xp: Any = np) -> None:
        super().__init__(problem, [params] * len(flipped), xp=xp)
        self._flipped, self._passed = flipped, 0  # hidden layers' outputs, of all steps

    def _repeated(self, function: Callable[..., None]) -> Callable[..., None]:
        return function  # no step flips what another does

    def _passes(self, outputs: FloatArray) -> NDArray[np.bool_]:
        passes, place = super()._passes(outputs), divmod(self._passed, len(self.problem.hidden))
        self._passed += 1
        for network, corners in enumerate(self._flipped):
            for corner in corners:
                if corner[:2] == place:
                    passes[network, corner.image, corner.unit] ^= True
        return passes


class Watched(Flipping):
    """One of these, which notes the other outputs that factors of so many bits may send over their ReLU's corner."""

    def __init__(self, problem: Problem, params: Params, flipped: Collection[Corner], bits: int, xp: Any = np) -> None:
        super().__init__(problem, params, [flipped], xp)
        self._rounding = 2.0**-bits
        self.corners: list[tuple[float, Corner]] = []
        """Each with how many roundings it is away."""

    def _product(self, left: FloatArray, right: FloatArray, name: Name) -> FloatArray:
        self._factors = left, right
        return super()._product(left, right, name)

    def _passes(self, outputs: FloatArray) -> NDArray[np.bool_]:
        place, xp = divmod(self._passed, len(self.problem.hidden)), self.xp
        left, right = (xp.square(factor.reshape(factor.shape[-2:])) for factor in self._factors)
        away = xp.abs(outputs[0]) / (self._rounding * xp.sqrt(left @ right))
        near = away < CORNER_ROUNDINGS
        found = zip(host(away[near]).tolist(), host(xp.argwhere(near)).tolist(), strict=True)
        self.corners += [(roundings, Corner(*place, *at)) for roundings, at in found]
        return super()._passes(outputs)


def _by_block(rows: FloatArray, block: int) -> FloatArray:
    """Rows (M, N) as (blocks, block, N); rows of zeros, which change no sum, fill the last block."""
    missing = -len(rows) % block
    padded = np.pad(rows, ((0, missing), (0, 0))) if missing else rows
    return padded.reshape(-1, block, rows.shape[1])


def addends_repeat(params: Params, images: NDArray[np.uint8]) -> bool:
    """Whether many images (N, I) of a batch add the same to a gradient.

    At most half of them differ, or parameters of zero give all the same outputs.
    """
    if not any(tensor.any() for tensor in params.tensors().values()):
        return True
    return 2 * len({image.tobytes() for image in images}) <= len(images)


def beyond_rounding(loss: float, reference: OracleEpoch, classes: int) -> float:
    """How far a mean loss is from the oracle's, less what float32 may round off each image's log-sum-exp.

    Each addition of exponentials rounds their sum, which is near 1 where the loss is small; adding the largest logit to
    the logarithm rounds both together. NaN stays NaN.
    """
    rounding = float(FLOAT32_ROUNDING) * (classes - 1 + reference.log_sum)
    return max(abs(loss - reference.mean_loss) - rounding, 0.0)


def _fitting(numbers: Any, tensor: FloatArray) -> Any:
    """Numbers (K, 1, 1) for a stack of matrices (K, M, N), or of vectors (K, N)."""
    return numbers if tensor.ndim == 3 else numbers[:, 0]


@lru_cache(maxsize=4)  # tens of megabytes each, which take as long to copy as a small network to train
def _noises(count: int, *draws: int) -> FloatArray:
    return np.stack([_noise(draw, count) for draw in draws])


@cache
def _noise(draw: int, count: int) -> FloatArray:
    return np.random.default_rng((draw, 1)).standard_normal(count, np.float32) * FLOAT32_ROUNDING
