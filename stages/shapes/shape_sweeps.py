"""The fastest launch shape of a product: every shape measured on the GPU at hand, and the sweep kept on disk.

The GPU's name, the sizes and a hash of everything that decides the machine code identify a kept sweep.
"""

from __future__ import annotations

import math
import statistics
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from common.cuda.tuning_cache import SWITCH_TIME_RATIO, TuningCache
from stages.engine.parts import float32, int32
from stages.shapes.launch_shapes import FIXED, KERNEL, SHAPES, SOURCE, Launch, Product, Shape, load

# Relative to the largest output: another order of summation changes 1e-6 of it, a defect far more.
TOLERANCE = 1e-5
DRAWN = 1_048_573  # random numbers, repeated for larger matrices; a prime, so no two rows are alike

Matrix = NDArray[np.float32]


class Candidate(msgspec.Struct, frozen=True):
    """A shape with the time of each of its turns, or the reason why it was left out."""

    shape: Shape
    samples_us: list[float] = []
    left_out: str = ""

    @property
    def median_us(self) -> float:
        """Infinite for a shape that was left out."""
        return statistics.median(self.samples_us) if self.samples_us else float("inf")


class Sweep(msgspec.Struct, frozen=True):
    """All shapes for one product, the fixed shape first."""

    candidates: list[Candidate]

    @property
    def chosen(self) -> int:
        """The fastest, if it is clearly faster than the ones before it; less than 2 % is noise."""
        best = 0
        for index, candidate in enumerate(self.candidates):
            if candidate.median_us < SWITCH_TIME_RATIO * self.candidates[best].median_us:
                best = index
        return best

    @property
    def shape(self) -> Shape:
        """The chosen candidate's shape."""
        return self.candidates[self.chosen].shape


class Sweeps:
    """The sweeps of one GPU, including those that other processes kept."""

    def __init__(self, device: Any) -> None:
        self._device = device
        self._kept = TuningCache(f"launch shapes on {device.name}", Sweep)

    def get(self, product: Product) -> Sweep | None:
        """The kept sweep; None if there is none, or if it covers other shapes than today's."""
        sweep = self._kept.get(self._key(product))
        if sweep is None or tuple(candidate.shape for candidate in sweep.candidates) != SHAPES:
            return None
        return sweep if sweep.candidates[0].samples_us else None

    def measure(self, product: Product) -> Sweep:
        """Time every shape, and keep the sweep.

        A shape that the GPU refuses, or whose outputs differ from the fixed shape's, is left out with the reason.
        Raises CUDA's error if the fixed shape itself cannot be launched, before or after the others.
        """
        device = self._device
        a, b, poison = _matrices(product)
        out = device.upload(poison)
        args = [device.upload(a), device.upload(b), out, *map(int32, product), float32(1.0), float32(0.0)]

        def computed(launch: Launch) -> Matrix:
            device.overwrite(out, poison)
            launch(*args)
            found: Matrix = device.download(out)
            return found

        fixed = load(device, FIXED, product)
        expected = computed(fixed)
        launches, left_out = {}, {}
        for shape in SHAPES:
            try:
                launch = load(device, shape, product)
                right = _agrees(computed(launch), expected)
            except Exception as error:  # CUDA's libraries raise many kinds: too many registers, for example
                left_out[shape] = f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0]}"
                continue
            if right:
                launches[shape] = launch
            else:
                left_out[shape] = "computes something else"
        computed(fixed)  # some errors break the GPU for all later launches: then no finding is about shapes

        calls = [lambda launch=launch: launch(*args) for launch in launches.values()]
        times = dict(zip(launches, device.samples(calls), strict=True))
        sweep = Sweep(
            [
                Candidate(shape, [second * 1e6 for second in times.get(shape, [])], left_out.get(shape, ""))
                for shape in SHAPES
            ]
        )
        self._kept.keep(self._key(product), sweep)
        return sweep

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


def _agrees(found: Matrix, expected: Matrix) -> bool:
    """Whether all outputs are within the tolerance; a NaN is not."""
    return bool((np.abs(found - expected) <= TOLERANCE * np.abs(expected).max()).all())
