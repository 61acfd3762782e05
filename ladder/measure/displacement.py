"""How far a run came from where it began: what two runs of one training share, however chaotic it is."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from common.problem import Params
from ladder.measure.chunks import in_pieces

Tensors = Sequence[NDArray[np.floating]]


class Displacement(msgspec.Struct, frozen=True):
    """From the first parameters to the last ones, over all layers.

    `retained` is 1 where training begins, and next to 0 for weights that began elsewhere, since random directions in
    thousands of dimensions are nearly at right angles.
    """

    distance: float  # the distance
    retained: float  # of the weights: <W, W0> / <W0, W0>; 0 from zeros

    @classmethod
    def of(cls, initial: Params, weights: Tensors, biases: Tensors) -> Displacement:
        """To these weights (I, O) and biases (O,), in any precision; NaN where they are of another network."""
        before, after = (*initial.weights, *initial.biases), (*weights, *biases)
        if [tensor.shape for tensor in before] != [tensor.shape for tensor in after]:
            return cls(math.nan, math.nan)
        squared = dot = size = 0.0
        for layer, (tensor, other) in enumerate(zip(before, after, strict=True)):
            for first, last in in_pieces(tensor, other):
                way = last - first
                squared += float(way @ way)
                if layer < len(initial.weights):
                    dot += float(last @ first)
                    size += float(first @ first)
        return cls(math.sqrt(squared), dot / size if size else 0.0)

    def difference(self, other: Displacement) -> float:
        """How much it differs from another from the same parameters, as a share; NaN from none at all."""
        if not (other.distance > 0.0 and math.isfinite(self.distance + self.retained)):
            return math.nan
        return max(abs(self.distance / other.distance - 1.0), abs(self.retained - other.retained))


NONE = Displacement(math.nan, math.nan)
