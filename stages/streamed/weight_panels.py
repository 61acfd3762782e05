"""A layer's weights in panels, in the order of ring.cuh, or in the planes of weight_planes.cuh."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

TILE = 64  # rows and columns
QUAD, UNIT = 4, 16  # numbers that stay together


def to_panels(weights: NDArray[Any]) -> NDArray[Any]:
    """Weights (I, O), O a multiple of 64, in panels of 64 outputs, in the same shape."""
    return _into(weights, QUAD, _place_bits).reshape(weights.shape)


def from_panels(memory: NDArray[Any]) -> NDArray[Any]:
    """The inverse of `to_panels`."""
    fan_in, fan_out = memory.shape
    return _out_of(memory.reshape(fan_out // TILE, fan_in, TILE), QUAD, _place_bits)


def to_planes(weights: NDArray[np.float32]) -> NDArray[np.float32]:
    """Weights (I, O), O a multiple of 64, in panels; each tile as a plane of bfloat16 and one of remainders."""
    fan_in, fan_out = weights.shape
    bits = np.ascontiguousarray(weights).view(np.uint32)
    planes = [
        _into(half.astype(np.uint16), UNIT, _unit_bits) for half in (bits + np.uint32(0x8000) >> 16, bits & 0xFFFF)
    ]
    tiles = [plane[:, row : row + TILE].reshape(len(plane), -1) for row in range(0, fan_in, TILE) for plane in planes]
    return np.concatenate(tiles, axis=1).view(np.float32).reshape(fan_in, fan_out)


def from_planes(memory: NDArray[np.float32]) -> NDArray[np.float32]:
    """The inverse of `to_planes`, bit for bit."""
    fan_in, fan_out = memory.shape
    panels = np.ascontiguousarray(memory).view(np.uint16).reshape(fan_out // TILE, fan_in, 2 * TILE)
    tiles = [panels[:, row : row + TILE].reshape(len(panels), 2, -1, TILE) for row in range(0, fan_in, TILE)]
    high, low = (
        _out_of(np.concatenate([tile[:, plane] for tile in tiles], axis=1), UNIT, _unit_bits) for plane in (0, 1)
    )
    bits = (high.astype(np.uint32) << 16) + low.view(np.int16).astype(np.uint32)
    return bits.view(np.float32)


def _place_bits(row: int) -> int:
    return row % 2 * 4 ^ row // 4 % 4 * 2


def _unit_bits(row: int) -> int:
    return (row ^ row // 4) % 4


def _into(matrix: NDArray[Any], unit: int, bits: Callable[[int], int]) -> NDArray[Any]:
    """A matrix (I, O) as panels (O / 64, I, 64), in row i with unit u of so many numbers at u ^ bits(i)."""
    units = matrix.reshape(len(matrix), -1, TILE // unit, unit)
    placed = np.empty((units.shape[1], len(matrix), TILE // unit, unit), matrix.dtype)
    for row in range(16):
        placed[:, row::16] = units[row::16][:, :, np.arange(TILE // unit) ^ bits(row)].swapaxes(0, 1)
    return placed.reshape(-1, len(matrix), TILE)


def _out_of(panels: NDArray[Any], unit: int, bits: Callable[[int], int]) -> NDArray[Any]:
    """The inverse of `_into`."""
    count, rows, _ = panels.shape
    placed = panels.reshape(count, rows, TILE // unit, unit)
    units = np.empty((rows, count, TILE // unit, unit), panels.dtype)
    for row in range(16):
        units[row::16] = placed[:, row::16][:, :, np.arange(TILE // unit) ^ bits(row)].swapaxes(0, 1)
    return units.reshape(rows, count * TILE)
