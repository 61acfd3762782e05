"""The fastest launch shape of a product: every shape measured on the GPU at hand, and the choice kept on disk.

The GPU's name, the sizes and a hash of everything that decides the machine code identify a kept choice.
"""

from __future__ import annotations

import math
import statistics
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from common.choice import TuningCache, first_fastest
from stages.engine.parts import float32, int32
from stages.shapes.launch_shapes import FIXED, KERNEL, SHAPES, SOURCE, Launch, Product, Shape, load

# Relative to the largest output: another order of summation changes 1e-6 of it, a defect far more.
TOLERANCE = 1e-5
DRAWN = 1_048_573  # random numbers, repeated for larger matrices; a prime, so no two rows are alike

Matrix = NDArray[np.float32]


class Sweeps:
    """The fastest shapes on one GPU, including those that other processes found."""

    def __init__(self, device: Any) -> None:
        self._device = device
        self._kept = TuningCache(f"launch shapes on {device.name}", Shape)

    def get(self, product: Product) -> Shape | None:
        """The kept shape; None if there is none, or none of today's."""
        shape = self._kept.get(self._key(product))
        return shape if shape in SHAPES else None

    def measure(self, product: Product) -> Shape:
        """Time every shape by the median of several turns, and keep the fastest.

        A shape that the GPU refuses, or whose outputs differ from the fixed shape's, is left out. Raises CUDA's error
        if the fixed shape itself cannot be launched, before or after the others.
        """
        device = self._device
        a, b, poison = _matrices(product)
        out = device.upload(poison)
        args = [device.upload(a), device.upload(b), out, *map(int32, product), float32(1.0), float32(0.0)]

        def computed(launch: Launch) -> Matrix:
            device.overwrite(out, poison)
            launch(*args)
            product: Matrix = device.download(out)
            return product

        fixed = load(device, FIXED, product)
        expected = computed(fixed)
        launches = {}
        for shape in SHAPES:
            with suppress(Exception):  # CUDA's libraries raise many kinds: too many registers, for example
                launch = load(device, shape, product)
                if _agrees(computed(launch), expected):
                    launches[shape] = launch
        computed(fixed)  # some errors break the GPU for all later launches: then no finding is about shapes

        samples = device.samples([partial(launch, *args) for launch in launches.values()])
        chosen = list(launches)[first_fastest([statistics.median(times) for times in samples])]
        self._kept.keep(self._key(product), chosen)
        return chosen

    def _key(self, product: Product) -> str:
        return f"{KERNEL} {'x'.join(map(str, product))} {self._device.source_key(SOURCE)}"


def _matrices(product: Product) -> tuple[Matrix, Matrix, Matrix]:
    """Random factors, and an output of NaN, so that an element that no thread writes shows."""
    m, n, k, trans_a, trans_b = product
    a, b = _drawn((k, m) if trans_a else (m, k), 0), _drawn((n, k) if trans_b else (k, n), 1)
    return a, b, np.full((m, n), np.nan, np.float32)


def _drawn(shape: tuple[int, int], seed: int) -> Matrix:
    size = math.prod(shape)
    some = np.random.default_rng(seed).standard_normal(min(size, DRAWN), np.float32)
    return np.resize(some, size).reshape(shape)


def _agrees(product: Matrix, expected: Matrix) -> bool:
    """Whether all outputs are within the tolerance; a NaN is not."""
    return bool((np.abs(product - expected) <= TOLERANCE * np.abs(expected).max()).all())
