"""Distances between parameters, and the displacement of a run, which correct runs share even if chaotic."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from common.arrays import by_blocks
from common.oracle import FloatArray
from common.problem import Params

CHUNK_ELEMENTS = 1 << 16  # several chunks fit into a core's cache, and NumPy's overhead per call is small
Tensors = Sequence[FloatArray]
Both = tuple[Tensors, Tensors]
"""Weights and biases."""


def in_chunks(*tensors: FloatArray) -> Iterator[tuple[NDArray[np.float64], ...]]:
    """Corresponding chunks of tensors of one shape, flattened, in order, as float64; one chunk of another module's."""
    flat = [tensor.reshape(-1) for tensor in tensors]
    size = CHUNK_ELEMENTS if isinstance(flat[0], np.ndarray) else flat[0].size
    for begin in range(0, flat[0].size, size):
        yield tuple(elements[begin : begin + size].astype(np.float64) for elements in flat)


def summed(terms: Callable[..., Sequence[float]], *tensors: FloatArray) -> list[float]:
    """The sums of the numbers that `terms` makes of each chunk; what is not finite stays so."""
    flat = [tensor.reshape(-1) for tensor in tensors]

    @np.errstate(all="ignore")  # of this thread
    def of_block(begin: int, end: int) -> list[float]:
        chunks = in_chunks(*(elements[begin:end] for elements in flat))
        return [sum(numbers) for numbers in zip(*(terms(*chunk) for chunk in chunks), strict=True)]

    size = flat[0].size
    blocks = by_blocks(of_block, size) if isinstance(flat[0], np.ndarray) else [of_block(0, size)]
    return [sum(numbers) for numbers in zip(*blocks, strict=True)]


def squared_distance(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    """||one - other||^2."""
    rest = one - other
    return dot(rest, rest)


def dot(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    """<one, other>, of any module's; not by NumPy's BLAS, which waits for the products of other threads."""
    return float(np.einsum("i,i", one, other) if isinstance(one, np.ndarray) else (one @ other).item())


class Displacement(msgspec.Struct, frozen=True):
    """The difference of final and initial parameters over all layers, in two numbers.

    `retained` is 1 at the start of training. It is almost 0 if training started from other weights, since random
    directions in thousands of dimensions are nearly orthogonal.
    """

    distance: float  # Euclidean, over weights and biases
    retained: float  # of the initial weights W0: <W, W0> / <W0, W0>; 0 if W0 is zero

    @classmethod
    def of(cls, initial: Params, weights: Tensors, biases: Tensors) -> Displacement:
        """From `initial` to weights (I, O) and biases (O,) of any precision; NaN if the shapes differ."""
        before, after = (*initial.weights, *initial.biases), (*weights, *biases)
        if [tensor.shape for tensor in before] != [tensor.shape for tensor in after]:
            return cls(math.nan, math.nan)
        moved = kept = size = 0.0
        for layer, (tensor, other) in enumerate(zip(before, after, strict=True)):
            way, along, length = summed(
                lambda first, last: (squared_distance(last, first), dot(last, first), dot(first, first)),
                *(tensor, other),
            )
            moved += way
            if layer < len(initial.weights):
                kept, size = kept + along, size + length
        return cls(math.sqrt(moved), kept / size if size else 0.0)

    def difference(self, other: Displacement) -> float:
        """The larger relative difference from another run's, from the same parameters; NaN if that did not move."""
        if not (other.distance > 0.0 and math.isfinite(self.distance + self.retained)):
            return math.nan
        return max(abs(self.distance / other.distance - 1.0), abs(self.retained - other.retained))


UNKNOWN = Displacement(math.nan, math.nan)


def apart(initial: Params, network: Both, aim: Both) -> float:
    """||W - W_ref|| / ||W_ref - W0|| over all tensors: 0 for the same run, 1 for one that does not move."""
    distance = length = 0.0
    for starts, ends, aims in zip((initial.weights, initial.biases), network, aim, strict=True):
        for tensors in zip(starts, ends, aims, strict=True):
            rest, way = summed(
                lambda start, end, wanted: (squared_distance(end, wanted), squared_distance(wanted, start)), *tensors
            )
            distance, length = distance + rest, length + way
    return math.sqrt(distance / length) if length > 0 else math.inf if distance > 0 else 0.0


def params_error(network: Both, aim: Both, *, least: float) -> float:
    """The largest ||W - W_ref|| / ||W_ref|| of a tensor; NaN if any is.

    The error of a tensor that happens to end near zero is relative to `least`, the size of a step.
    """
    errors = [
        _relative_error(end, wanted, least)
        for ends, aims in zip(network, aim, strict=True)
        for end, wanted in zip(ends, aims, strict=True)
    ]
    return float(np.max(np.array(errors)))


def _relative_error(value: FloatArray, wanted: FloatArray, least: float) -> float:
    distance, size = summed(lambda end, aim: (squared_distance(end, aim), dot(aim, aim)), value, wanted)
    return math.sqrt(distance) / max(math.sqrt(size), least)
