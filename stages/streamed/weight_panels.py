"""A layer's weights in the order of stages/kernels/streamed/ring.cuh, in panels of 64 outputs."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

TILE = 64  # rows and columns
QUAD = 4  # numbers
QUADS = TILE // QUAD


def to_panels(weights: NDArray[Any]) -> NDArray[Any]:
    """Weights (I, O), O a multiple of 64, as they lie in memory, in the same shape."""
    fan_in, fan_out = weights.shape
    quads = weights.reshape(fan_in, fan_out // TILE, QUADS, QUAD)
    placed = np.empty((fan_out // TILE, fan_in, QUADS, QUAD), weights.dtype)
    for row, places in _places(fan_in):
        placed[:, row] = quads[row][:, :, places].swapaxes(0, 1)
    return placed.reshape(fan_in, fan_out)


def from_panels(memory: NDArray[Any]) -> NDArray[Any]:
    """The inverse of `to_panels`."""
    fan_in, fan_out = memory.shape
    placed = memory.reshape(fan_out // TILE, fan_in, QUADS, QUAD)
    quads = np.empty((fan_in, fan_out // TILE, QUADS, QUAD), memory.dtype)
    for row, places in _places(fan_in):
        quads[row] = placed[:, row][:, :, places].swapaxes(0, 1)
    return quads.reshape(fan_in, fan_out)


def _places(fan_in: int) -> list[tuple[slice, NDArray[np.intp]]]:
    """Rows with the same order of quads, and that order, which is its own inverse."""
    return [
        (slice(row, fan_in, 16), np.arange(QUADS) ^ (row % 2 * 4 ^ row // 4 % 4 * 2)) for row in range(min(fan_in, 16))
    ]
