"""Numbers as sums of float16 halves, as large batches keep them: all high halves of a row, then the low ones."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stages.large_batch.layout import WEIGHT_SCALE


def sum_of_halves(bits: NDArray[np.uint16], halves: int, single: bool = False) -> NDArray[np.float64]:
    """The numbers (rows, width) of bits (rows, halves * width); `single`: bits of float32 parts instead."""
    numbers = bits.view(np.float32 if single else np.float16).astype(np.float64)
    summed: NDArray[np.float64] = numbers.reshape(len(bits), halves, -1).sum(axis=1)
    return summed


def halves_of(numbers: NDArray[np.float64], halves: int) -> NDArray[np.uint16]:
    """Bits (halves, rows, width) of numbers (rows, width), each half rounded."""
    parts, rest = [], numbers
    for _ in range(halves):
        parts.append(rest.astype(np.float16))
        rest = rest - parts[-1]
    return np.stack(parts).view(np.uint16)


def scaled_down(bits: NDArray[np.uint16]) -> NDArray[np.float64]:
    """Weights (.., I, O) of the bits (.., halves, I, O) that kernels read."""
    summed: NDArray[np.float64] = bits.view(np.float16).astype(np.float64).sum(axis=-3)
    return summed / WEIGHT_SCALE
