"""Which launch shape of a kernel is the fastest for an operation: every one measured, and all of it kept on disk.

What is kept is found by the GPU's name, the kernel with a hash of all that decides its machine code, and the sizes.
"""

from __future__ import annotations

import statistics
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from common.cuda.tuning_cache import SWITCH_TIME_RATIO, TuningCache
from stages.engine.launch_shapes import PLAIN, Shape, Sizes
from stages.engine.workspace import KERNELS
from stages.shapes.sample_inputs import arguments

# Of the largest number: sums of another order differ by 1e-6 of it, and a defect of one part in a thousand by far more.
MOST_APART = 1e-5


class Candidate(msgspec.Struct, frozen=True):
    """A shape that was tried: how long a launch took in each turn, or why it was left out."""

    shape: Shape
    samples_us: list[float] = []
    left_out: str = ""

    @property
    def median_us(self) -> float:
        """Infinite where it was left out."""
        return statistics.median(self.samples_us) if self.samples_us else float("inf")


class Sweep(msgspec.Struct, frozen=True):
    """All shapes of a kernel for operations of one size, the one without any measurement first."""

    candidates: list[Candidate]

    @property
    def chosen(self) -> int:
        """The fastest, where that is clear: less than two parts in a hundred is noise."""
        best = 0
        for index, candidate in enumerate(self.candidates):
            if candidate.median_us < SWITCH_TIME_RATIO * self.candidates[best].median_us:
                best = index
        return best

    @property
    def shape(self) -> Shape:
        """The chosen one's."""
        return self.candidates[self.chosen].shape


class Sweeps:
    """The sweeps on one GPU, those that any process has kept among them."""

    def __init__(self, device: Any) -> None:
        self._device = device
        self._kept = TuningCache(f"launch shapes on {device.name}", Sweep)
        self.damaged = self._kept.damaged  # the file that could not be read, and is as good as none

    def get(self, kernel: str, sizes: Sizes) -> Sweep | None:
        """The sweep that was kept; None where there is none, or one over other shapes."""
        sweep = self._kept.get(self._purpose(kernel, sizes))
        if sweep is None or [candidate.shape for candidate in sweep.candidates] != list(PLAIN[kernel].shapes):
            return None
        return sweep if sweep.candidates[0].samples_us else None

    def measure(self, kernel: str, sizes: Sizes) -> Sweep:
        """Try every shape, and keep what was found.

        A shape that the GPU refuses, or that computes something else than the first one, is left out with the reason.
        Raises what CUDA raises where even the first one cannot be launched, or no longer can after the others.
        """
        tunable, device = PLAIN[kernel], self._device
        made = arguments(kernel, sizes)
        before = made.values[made.written]
        args = [device.upload(value) if isinstance(value, np.ndarray) else value for value in made.values]

        def computed(launch: Any) -> NDArray[Any]:
            device.overwrite(args[made.written], before)
            launch(*args)
            found: NDArray[Any] = device.download(args[made.written])
            return found

        fixed = tunable.load(device, kernel, tunable.fixed, sizes)
        expected = computed(fixed)
        launches, left_out = {}, {}
        for shape in tunable.shapes:
            try:
                launch = tunable.load(device, kernel, shape, sizes)
                right = _agrees(computed(launch), expected)
            except Exception as error:  # too many registers, say; whatever CUDA's libraries raise becomes the reason
                left_out[shape] = f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0]}"
                continue
            if right:
                launches[shape] = launch
            else:
                left_out[shape] = "computes something else"
        computed(fixed)  # some errors leave a GPU behind on which nothing runs: that is no finding about shapes

        calls = [lambda launch=launch: launch(*args) for launch in launches.values()]
        times = dict(zip(launches, device.samples(calls), strict=True))
        sweep = Sweep(
            [
                Candidate(shape, [second * 1e6 for second in times.get(shape, [])], left_out.get(shape, ""))
                for shape in tunable.shapes
            ]
        )
        self._kept.keep(self._purpose(kernel, sizes), sweep)
        return sweep

    def _purpose(self, kernel: str, sizes: Sizes) -> str:
        key = self._device.source_key(KERNELS / PLAIN[kernel].file)
        return f"{kernel} {'x'.join(map(str, sizes))} {key}"


def _agrees(found: NDArray[Any], expected: NDArray[Any]) -> bool:
    """Whether no number is far off, nor missing: nothing is near a NaN."""
    return bool((np.abs(found - expected) <= MOST_APART * np.abs(expected).max()).all())
