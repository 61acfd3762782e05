"""Iterates over large tensors in float64 chunks: a wide network's parameters would not fit into a cache."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

CHUNK_ELEMENTS = 1 << 16  # several chunks fit into a core's cache, and NumPy's overhead per call is small


def in_chunks(*tensors: NDArray[np.floating]) -> Iterator[tuple[NDArray[np.float64], ...]]:
    """Corresponding chunks of tensors of one shape, flattened, in order, as float64."""
    flat = [np.ravel(tensor) for tensor in tensors]
    for begin in range(0, flat[0].size, CHUNK_ELEMENTS):
        yield tuple(elements[begin : begin + CHUNK_ELEMENTS].astype(np.float64) for elements in flat)
