"""Pixels as float32: each is the same part of 256."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.random import Generator

from tests.kernels.cases import Args, Case, counts, one_dimensional, poison


def double(pixels: Any, images: Any, count: int) -> dict[str, Any]:
    return {"images": pixels / np.float64(256)}


def cases(random: Generator) -> Iterator[Case]:
    for count in counts():
        pixels = random.integers(0, 256, count, np.uint8)
        pixels[0], pixels[-1] = 255, 255
        args: Args = {"pixels": pixels, "images": poison((count,)), "count": count}
        yield one_dimensional("expand_pixels", count, args, {"images": 0.0})
