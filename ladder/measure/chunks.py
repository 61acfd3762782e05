"""Tensors in float64, piece by piece: sums over the parameters of a wide network, none of which fits into a cache."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

PIECE = 1 << 16  # numbers: some pieces of that fit into a core's cache, and NumPy's calls cost little beside them


def in_pieces(*tensors: NDArray[np.floating]) -> Iterator[tuple[NDArray[np.float64], ...]]:
    """The same elements of tensors of one shape, in order, so many at once."""
    flat = [np.ravel(tensor) for tensor in tensors]
    for begin in range(0, flat[0].size, PIECE):
        yield tuple(numbers[begin : begin + PIECE].astype(np.float64) for numbers in flat)
