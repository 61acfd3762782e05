"""A layer's weights in panels, in the order of ring.cuh, or in the planes of weight_planes.cuh."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

TILE = 64  # rows and columns
QUAD, UNIT = 4, 8  # numbers that stay together
# Columns at once. A run may take no longer than a copy at 1 GB/s to load and to read parameters, and for arrays of a
# megabyte the C library asks for new memory each time.
PIECE = 1024


def to_panels(weights: NDArray[Any]) -> NDArray[Any]:
    """Weights (I, O), O a multiple of 64, in panels of 64 outputs, in the same shape."""
    panels = np.empty((weights.shape[1] // TILE, len(weights), TILE), weights.dtype)
    for rows, columns, some in _pieces(weights.shape):
        panels[some, rows] = _into(weights[rows, columns], QUAD)
    return panels.reshape(weights.shape)


def from_panels(memory: NDArray[Any]) -> NDArray[Any]:
    """The inverse of `to_panels`."""
    weights, panels = np.empty_like(memory), memory.reshape(-1, len(memory), TILE)
    for rows, columns, some in _pieces(memory.shape):
        weights[rows, columns] = _out_of(panels[some, rows], QUAD)
    return weights


def to_planes(weights: NDArray[np.float32]) -> NDArray[np.float32]:
    """Weights (I, O), O a multiple of 64, in panels; each tile as a plane of bfloat16 and one of remainders."""
    panels = np.empty((weights.shape[1] // TILE, len(weights), 2 * TILE), np.uint16)
    for rows, columns, some in _pieces(weights.shape):
        bits = weights.view(np.uint32)[rows, columns]
        planes = [_into(half.astype(np.uint16), UNIT) for half in (bits + np.uint32(0x8000) >> 16, bits)]
        panels[some, rows] = np.stack(planes, axis=1).reshape(-1, len(bits), 2 * TILE)
    return panels.view(np.float32).reshape(weights.shape)


def from_planes(memory: NDArray[np.float32]) -> NDArray[np.float32]:
    """The inverse of `to_planes`, bit for bit."""
    bits, panels = np.empty(memory.shape, np.uint32), memory.view(np.uint16).reshape(-1, len(memory), 2 * TILE)
    for rows, columns, some in _pieces(memory.shape):
        planes = panels[some, rows].reshape(-1, 2, rows.stop - rows.start, TILE)
        high, low = (_out_of(planes[:, plane], UNIT) for plane in (0, 1))
        bits[rows, columns] = (high.astype(np.uint32) << 16) + low.view(np.int16).astype(np.uint32)
    return bits.view(np.float32)


def _pieces(shape: tuple[int, ...]) -> Iterator[tuple[slice, slice, slice]]:
    """A tile's rows, and some columns with their panels."""
    for row, column in product(range(0, shape[0], TILE), range(0, shape[1], PIECE)):
        columns = slice(column, min(column + PIECE, shape[1]))
        yield slice(row, min(row + TILE, shape[0])), columns, slice(column // TILE, columns.stop // TILE)


@cache
def _order(rows: int, unit: int) -> NDArray[np.intp]:
    """The unit of so many numbers at each place in rows of a tile: in row i unit u is at u ^ bits(i)."""
    row, place = np.arange(rows)[:, None], np.arange(TILE // unit)
    if unit == QUAD:
        return (row * len(place) + (place ^ row % 2 * 4 ^ row // 4 % 4 * 2)).ravel()
    return (row_at(row) * len(place) + (place ^ row % 8)).ravel()


@cache
def _places(rows: int, unit: int) -> NDArray[np.intp]:
    """The inverse of `_order`."""
    return np.argsort(_order(rows, unit))


def stored_at(row: NDArray[np.intp]) -> NDArray[np.intp]:
    """The row of a tile of planes at which each of its rows stands; weight_planes.cuh says why."""
    return row & ~7 | (row >> 1 & 1 ^ row >> 3 & 1) << 2 | (row & 1 ^ row >> 2 & 1) << 1 | row >> 2 & 1


def row_at(stored: NDArray[np.intp]) -> NDArray[np.intp]:
    """The inverse of `stored_at`."""
    return stored & ~7 | (stored & 1) << 2 | (stored >> 2 & 1 ^ stored >> 3 & 1) << 1 | stored >> 1 & 1 ^ stored & 1


def _into(matrix: NDArray[Any], unit: int) -> NDArray[Any]:
    """A matrix (I, O) as panels (O / 64, I, 64) with their units in order."""
    rows = len(matrix)
    units = matrix.reshape(rows, -1, TILE).swapaxes(0, 1).reshape(-1, rows * TILE // unit, unit)
    return units.take(_order(rows, unit), axis=1).reshape(-1, rows, TILE)


def _out_of(panels: NDArray[Any], unit: int) -> NDArray[Any]:
    """The inverse of `_into`."""
    count, rows, _ = panels.shape
    units = panels.reshape(count, rows * TILE // unit, unit).take(_places(rows, unit), axis=1)
    return units.reshape(count, rows, TILE).swapaxes(0, 1).reshape(rows, count * TILE)
