"""Numbers as sums of float16 halves and in fragments, as kernels keep them; for large batches all high halves of a row,
then the low ones.
"""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray

from stages.large_batch.layout import WEIGHT_SCALE, EarlyLayout, Layout


def sum_of_halves(bits: NDArray[np.uint16], halves: int, single: bool = False) -> NDArray[np.float64]:
    """The numbers (rows, width) of bits (rows, halves * width); `single`: bits of float32 parts instead."""
    numbers = bits.view(np.float32 if single else np.float16).astype(np.float64)
    summed: NDArray[np.float64] = numbers.reshape(len(bits), halves, -1).sum(axis=1)
    return summed


def first_sums(layout: Layout, bits: NDArray[np.uint16]) -> NDArray[np.float64]:
    """The first layer's sums (rows, width) of the bits that a head takes."""
    return sum_of_halves(bits, 1 if isinstance(layout, EarlyLayout) else layout.halves, single=layout.halves == 2)


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


def chunks_of(bits: NDArray[np.uint16], by_columns: bool = True) -> NDArray[np.uint16]:
    """Matrices (.., rows, columns) in chunks of 16 by 16, four matrices of 8 by 8 each: (.., chunks, 256)."""
    rows, columns = bits.shape[-2:]
    lead = bits.shape[:-2]
    cut = bits.reshape(*lead, rows // 16, 2, 8, columns // 16, 2, 8)
    first, second = (-3, -6) if by_columns else (-6, -3)
    ordered = np.moveaxis(cut, (first, second, -2, -5, -4, -1), (-6, -5, -4, -3, -2, -1))
    return np.ascontiguousarray(ordered).reshape(*lead, rows * columns // 256, 256)


def from_chunks(chunks: NDArray[np.uint16], rows: int, by_columns: bool = True) -> NDArray[np.uint16]:
    """The matrices (.., rows, columns) of their chunks (.., chunks, 256)."""
    lead, columns = chunks.shape[:-2], chunks.shape[-2] * 256 // rows
    shape = (columns // 16, rows // 16) if by_columns else (rows // 16, columns // 16)
    first, second = (-3, -6) if by_columns else (-6, -3)
    ordered = chunks.reshape(*lead, *shape, 2, 2, 8, 8)
    cut = np.moveaxis(ordered, (-6, -5, -4, -3, -2, -1), (first, second, -2, -5, -4, -1))
    return np.ascontiguousarray(cut).reshape(*lead, rows, columns)


def matrix(parts: NDArray[np.float16]) -> NDArray[np.float16]:
    """The matrix (16, 16) of its four of 8 by 8, (2, 2, 8, 8)."""
    return np.block([[parts[i, j] for j in range(2)] for i in range(2)])


def neighbour_grams_of(images: NDArray[np.float16]) -> NDArray[np.float16]:
    """What the kernel of that name makes of images (steps, tiles, P, 2, 2, 8, 8): (steps - 1, 2 P, P, 32, 8)."""
    steps, tiles, pairs = images.shape[:3]
    batches = [np.block([[matrix(images[s, t, p]) for t in range(tiles)] for p in range(pairs)]) for s in range(steps)]
    lanes = np.arange(32)
    images_of = 8 * np.arange(2 * pairs)[:, None, None, None] + (lanes // 4)[:, None]
    rows_of = 16 * np.arange(pairs)[:, None, None] + (lanes % 4 * 2)[:, None] + np.array([0, 1, 8, 9])
    grams = []
    for before, after in itertools.pairwise(batches):
        summed = before.astype(np.float32) @ after.astype(np.float32).T
        products = halves_of(summed.astype(np.float64), 2).view(np.float16)
        grams.append(np.moveaxis(products[:, rows_of, images_of], 0, 3))
    return np.reshape(grams, (steps - 1, 2 * pairs, pairs, 32, 8))
