"""Synthetic digits: the replacement when neither MNIST files nor a network are available.

Each image is a glyph of five by seven cells, sheared, bent, scaled and shifted, with a pen, an ink and grain of its
own. The spread of these makes the classes overlap for a linear classifier but not for a small network, as in MNIST.

Pixels come from random bits and elementwise + - * / alone: no BLAS, no mathematical library, no sum of unspecified
order. The bytes therefore depend on the seed and NumPy's PCG64 stream, not on the machine.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

TRAIN_IMAGES = 60_000
TEST_IMAGES = 10_000
CLASSES = 10
SIDE = 28  # pixels

_ROWS, _COLUMNS, _PAD = 7, 5, 2  # cells of a glyph, and empty ones around it
_CELL = 2.6  # pixels
_IMAGES_AT_ONCE = 200  # drawn together, to stay in the processor's cache
# A row of cells is two hexadecimal digits; the glyphs are those of terminals.
_GLYPHS = (
    "0e11131519110e", "040c040404040e", "0e11010204081f", "1f02040201110e", "02060a121f0202",
    "1f101e0101110e", "0608101e11110e", "1f010204080808", "0e11110e11110e", "0e11110f01020c",
)  # fmt: skip

_Uint8Array = NDArray[np.uint8]
_FloatArray = NDArray[np.float32]


def synthetic_digits(
    seed: int, train_images: int = TRAIN_IMAGES, test_images: int = TEST_IMAGES
) -> tuple[tuple[_Uint8Array, _Uint8Array], tuple[_Uint8Array, _Uint8Array]]:
    """Draw (images, labels) for training, then for testing: (N, 28, 28) and (N,), uint8, white ink on black.

    The same arguments give the same bytes. MNIST's sizes take about 3 s on one core.
    """
    random = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(1,)))
    labels = random.integers(CLASSES, size=train_images + test_images, dtype=np.uint8)
    images = np.empty((len(labels), SIDE, SIDE), np.uint8)
    for start in range(0, len(labels), _IMAGES_AT_ONCE):
        images[start : start + _IMAGES_AT_ONCE] = _drawn(random, labels[start : start + _IMAGES_AT_ONCE])
    return (images[:train_images], labels[:train_images]), (images[train_images:], labels[train_images:])


def _glyphs() -> _FloatArray:
    """The cells (10, 11, 9) of all glyphs, 1 where there is ink."""
    rows = np.array([list(bytes.fromhex(glyph)) for glyph in _GLYPHS], np.uint8)
    cells = np.unpackbits(rows[..., None], axis=2)[..., -_COLUMNS:]
    return np.pad(cells, ((0, 0), (_PAD, _PAD), (_PAD, _PAD))).astype(np.float32)


def _drawn(random: np.random.Generator, labels: _Uint8Array) -> _Uint8Array:
    """Images (N, 28, 28) of these digits."""

    def spread(half_width: float) -> _FloatArray:
        return half_width * (2 * random.random((len(labels), 1, 1), np.float32) - 1)

    # These widths set the difficulty, which tests/common/data/test_synthetic.py checks.
    pixels = ((np.arange(SIDE) - (SIDE - 1) / 2) / _CELL).astype(np.float32)
    y = (pixels[:, None] - spread(1.05)) / (1 + spread(0.15))
    x = (pixels - spread(1.05)) / (1 + spread(0.25))
    x = x + (spread(0.5) - 0.1) * y + spread(0.08) * y * y
    y = y + spread(0.25) * x
    shades = _shade(_glyphs(), labels, y + (_ROWS - 1) / 2 + _PAD, x + (_COLUMNS - 1) / 2 + _PAD)
    ink = 0.4 + 0.6 * random.random((len(labels), 1, 1), np.float32)
    grain = random.integers(153, 256, shades.shape, np.uint8)  # a pixel's limit: 0.6 to 1 of full ink
    grey: _FloatArray = np.minimum(ink * (2.4 + spread(1.2)) * shades, 1) * grain
    return grey.astype(np.uint8)


def _shade(glyphs: _FloatArray, labels: _Uint8Array, y: _FloatArray, x: _FloatArray) -> _FloatArray:
    """The ink at places (N, 28, 28), in cells: between four cells, in proportion."""
    _, rows, columns = glyphs.shape
    y, x = np.clip(y, 0, rows - 1.01), np.clip(x, 0, columns - 1.01)
    row, column = np.floor(y), np.floor(x)
    down, right = y - row, x - column
    cells, first = glyphs.reshape(-1), labels[:, None, None] * np.float32(rows * columns)
    place = (first + row * columns + column).astype(np.intp)
    upper, lower = ((1 - right) * cells[at] + right * cells[at + 1] for at in (place, place + columns))
    shades: _FloatArray = (1 - down) * upper + down * lower
    return shades
