"""Synthetic digits: the replacement when neither MNIST files nor a network are available.

A glyph is a few pen strokes: quadratic B-splines over control points. Each image moves the control points, shears,
scales and shifts the glyph, picks a pen and an ink, and adds grain. Several glyphs for most digits and a wide spread
of slants make the classes overlap for a linear classifier but not for a small network, as in MNIST.

Pixels come from random bits and elementwise + - * / alone: no BLAS, no mathematical library, no sum of unspecified
order. The bytes therefore depend on the seed and NumPy's PCG64 stream, not on the machine.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

TRAIN_IMAGES = 60_000
TEST_IMAGES = 10_000
CLASSES = 10
SIDE = 28  # pixels

_GLYPH_PIXELS = 18.0  # height of an unscaled glyph
_DOTS_PER_PIXEL = 1.2  # along a stroke: leaves no gap even in a stretched stroke
_IMAGES_AT_ONCE = 200  # drawn together, to stay in the processor's cache

_Point = tuple[float, float]
_Uint8Array = NDArray[np.uint8]
_FloatArray = NDArray[np.float64]

# The glyphs of each digit: strokes divided by "/", each a list of control points "x y" in percent of a box, x to the
# right and y down. Points overshoot the box, since a spline stays inside its control polygon. A repeated point makes a
# corner. A stroke that ends with its first two points is closed.
_GLYPHS = (
    (  # 0
        "30 0, 70 0, 100 30, 100 70, 70 100, 30 100, 0 70, 0 30, 30 0, 70 0",
    ),
    (  # 1
        "50 0, 50 100",
        "25 25, 50 0, 50 0, 50 100",
        "30 20, 50 0, 50 0, 50 100 / 20 100, 80 100",
    ),
    (  # 2
        "10 25, 20 -10, 100 -10, 95 45, 10 100, 10 100, 95 100",
        "10 20, 30 -10, 100 -5, 80 60, 20 110, 0 80, 30 75, 60 105, 100 95",
    ),
    (  # 3
        "5 15, 40 -10, 100 0, 90 45, 40 47, 40 47, 100 50, 110 100, 40 110, 0 85",
        "10 0, 90 0, 90 0, 40 40, 40 40, 105 40, 105 105, 40 110, 0 85",
    ),
    (  # 4
        "70 100, 70 0, 70 0, 5 65, 5 65, 100 65",
        "15 0, 10 55, 10 55, 90 50 / 80 0, 70 100",
    ),
    (  # 5
        "90 0, 20 0, 20 0, 15 45, 15 45, 60 30, 110 50, 95 105, 30 110, 5 85",
        "85 0, 30 0, 5 30, 50 45, 100 60, 80 105, 10 100",
    ),
    (  # 6
        "80 0, 30 10, -5 60, 10 110, 90 110, 100 55, 40 35, 5 75",
        "40 0, 10 50, 5 105, 70 110, 80 60, 35 55, 15 80",
    ),
    (  # 7
        "5 0, 95 0, 95 0, 40 100",
        "5 10, 50 0, 100 0, 60 50, 50 100 / 30 50, 85 50",
    ),
    (  # 8
        "95 15, 60 -10, 5 5, 10 45, 95 55, 95 110, 5 110, 5 55, 90 40, 95 15, 60 -10",
    ),
    (  # 9
        "90 20, 60 -10, 5 0, 5 50, 60 60, 90 20, 90 20, 80 100",
        "85 25, 60 -10, 0 5, 10 55, 90 45, 95 10, 100 90, 60 110, 10 100",
    ),
)


@dataclass(frozen=True)
class _Curve:
    """A prepared glyph: dot p is the sum over j of `weights[p, j] * controls[picks[p, j]]`."""

    controls: _FloatArray  # (K, 2), each point once, so touching strokes move together
    picks: NDArray[np.intp]  # (P, 3)
    weights: _FloatArray  # (P, 3)


def synthetic_digits(
    seed: int, train_images: int = TRAIN_IMAGES, test_images: int = TEST_IMAGES
) -> tuple[tuple[_Uint8Array, _Uint8Array], tuple[_Uint8Array, _Uint8Array]]:
    """Draw (images, labels) for training, then for testing: (N, 28, 28) and (N,), uint8, white ink on black.

    The same arguments give the same bytes. MNIST's sizes take about 3 s on one core.
    """
    random = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(1,)))
    images, labels = _draw(random, train_images + test_images)
    return (images[:train_images], labels[:train_images]), (images[train_images:], labels[train_images:])


def _draw(random: np.random.Generator, count: int) -> tuple[_Uint8Array, _Uint8Array]:
    """Draw images (count, 28, 28) and labels (count,), with classes and glyphs in random order."""
    labels = random.integers(CLASSES, size=count, dtype=np.uint8)
    variant = random.random(count)
    images = np.empty((count, SIDE, SIDE), np.uint8)
    for label, glyphs in enumerate(_GLYPHS):
        for index, glyph in enumerate(glyphs):
            chosen = np.flatnonzero((labels == label) & ((variant * len(glyphs)).astype(np.intp) == index))
            curve = _curve(glyph)
            for start in range(0, len(chosen), _IMAGES_AT_ONCE):
                part = chosen[start : start + _IMAGES_AT_ONCE]
                images[part] = _ink(random, *_dots(random, curve, len(part)))
    return images, labels


def _curve(glyph: str) -> _Curve:
    """Place dots along every stroke of a glyph, evenly by control polygon length."""
    pieces = [piece for stroke in glyph.split("/") for piece in _pieces(stroke)]
    places = sorted({point for piece in pieces for point in piece})
    picks, weights = [], []
    for first, middle, last in pieces:
        length = (abs(last[0] - first[0]) + abs(last[1] - first[1])) / 2 * _GLYPH_PIXELS
        dots = max(2, round(length * _DOTS_PER_PIXEL))
        t = (np.arange(dots) + 0.5) / dots
        # The uniform quadratic B-spline basis (de Boor, A Practical Guide to Splines, chapter IX).
        weights.append(np.stack([(1 - t) * (1 - t) / 2, (1 + 2 * t - 2 * t * t) / 2, t * t / 2], axis=1))
        picks.append(np.tile([places.index(point) for point in (first, middle, last)], (dots, 1)))
    return _Curve(np.array(places), np.concatenate(picks), np.concatenate(weights))


def _pieces(stroke: str) -> list[tuple[_Point, _Point, _Point]]:
    """The three control points of each piece of a stroke's spline; an open spline reaches both ends."""
    points = []
    for point in stroke.split(","):
        x, y = point.split()
        points.append((int(x) / 100, int(y) / 100))
    closed = len(points) > 2 and points[:2] == points[-2:]
    if not closed:
        points = [points[0], *points, points[-1]]
    return list(zip(points, points[1:], points[2:], strict=False))


def _dots(random: np.random.Generator, curve: _Curve, count: int) -> tuple[_FloatArray, _FloatArray]:
    """Positions x and y of the dots of `count` images, each (count, P), in pixels."""

    def spread(half_width: float, columns: int = 1) -> _FloatArray:
        return half_width * (2 * random.random((count, columns)) - 1)

    # These widths set the difficulty, which tests/common/data/test_synthetic.py checks.
    places = len(curve.controls)
    x = curve.controls[:, 0] - 0.5 + spread(0.12, places)
    y = curve.controls[:, 1] - 0.5 + spread(0.12, places)
    x = (0.8 + spread(0.2)) * x + (spread(0.4) - 0.1) * y + spread(0.2) * y * y
    y = (1 + spread(0.12)) * y + spread(0.2) * x
    centre = (SIDE - 1) / 2
    x = centre + spread(2.75) + _GLYPH_PIXELS * x
    y = centre + spread(2.75) + _GLYPH_PIXELS * y
    return _spline(curve, x), _spline(curve, y)


def _spline(curve: _Curve, controls: _FloatArray) -> _FloatArray:
    """One coordinate of the dots (N, P) from the control points' coordinate (N, K)."""
    terms = [curve.weights[:, j] * controls[:, curve.picks[:, j]] for j in range(3)]
    return terms[0] + terms[1] + terms[2]


def _ink(random: np.random.Generator, x: _FloatArray, y: _FloatArray) -> _Uint8Array:
    """Images (N, 28, 28) from dots (N, P): each dot spread over four pixels, then widened by the pen."""
    count = len(x)
    x, y = np.clip(x, 1, SIDE - 2.01), np.clip(y, 1, SIDE - 2.01)
    column, row = x.astype(np.intp), y.astype(np.intp)
    right, down = x - column, y - row
    pixel = (np.arange(count)[:, None] * SIDE + row) * SIDE + column
    places = np.concatenate([pixel, pixel + 1, pixel + SIDE, pixel + SIDE + 1], axis=None)
    up, left = 1 - down, 1 - right
    shares = np.concatenate([left * up, right * up, left * down, right * down], axis=None)
    # bincount with weights returns float64; NumPy's type stubs disagree.
    flat = np.bincount(places, shares, minlength=count * SIDE * SIDE).astype(np.float64, copy=False)
    image = flat.reshape(count, SIDE, SIDE)
    pen = 0.1 + 0.8 * random.random((count, 1, 1))
    image[:, 1:-1] += pen * (image[:, :-2] + image[:, 2:])
    image[:, :, 1:-1] += pen * (image[:, :, :-2] + image[:, :, 2:])
    ink = 0.4 + 0.6 * random.random((count, 1, 1))
    grain = random.integers(153, 256, image.shape, np.uint8)  # a pixel's limit: 0.6 to 1 of full ink
    grey: _FloatArray = np.minimum(ink * image, 1) * grain
    return grey.astype(np.uint8)
