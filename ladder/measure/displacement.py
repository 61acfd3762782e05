"""The displacement of a training run from its initial parameters, which correct runs share even if chaotic."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from common.problem import Params

CHUNK_ELEMENTS = 1 << 16  # several chunks fit into a core's cache, and NumPy's overhead per call is small
Tensors = Sequence[NDArray[np.floating]]


def in_chunks(*tensors: NDArray[np.floating]) -> Iterator[tuple[NDArray[np.float64], ...]]:
    """Corresponding chunks of tensors of one shape, flattened, in order, as float64; one chunk of another module's."""
    flat = [tensor.reshape(-1) for tensor in tensors]
    size = CHUNK_ELEMENTS if isinstance(flat[0], np.ndarray) else flat[0].size
    for begin in range(0, flat[0].size, size):
        yield tuple(elements[begin : begin + size].astype(np.float64) for elements in flat)


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
        squared = dot = size = 0.0
        for layer, (tensor, other) in enumerate(zip(before, after, strict=True)):
            for first, last in in_chunks(tensor, other):
                change = last - first
                squared += float(change @ change)
                if layer < len(initial.weights):
                    dot += float(last @ first)
                    size += float(first @ first)
        return cls(math.sqrt(squared), dot / size if size else 0.0)

    def difference(self, other: Displacement) -> float:
        """The larger relative difference from another run's, from the same parameters; NaN if that did not move."""
        if not (other.distance > 0.0 and math.isfinite(self.distance + self.retained)):
            return math.nan
        return max(abs(self.distance / other.distance - 1.0), abs(self.retained - other.retained))


UNKNOWN = Displacement(math.nan, math.nan)
