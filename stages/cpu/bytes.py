"""CPU bytes: images stay bytes, a quarter of the memory traffic.

Why: an epoch of float32 images is 188 MB, which no cache holds: each step waits for 401 KB from memory. A pixel has
8 bits.

Change: data. Tiles convert pixels in registers. Where BLAS multiplies the images, a kernel expands each batch first.

Expect: 100 KB a step instead of 401 at 10 to 20 GB/s: 15 to 30 us less for 784-10. A few us more or less where BLAS
needs them expanded.

Predict: on CPU: 784-10, batch 128: 15 to 30 us less than cpu-tiles.

Found: as predicted: the images' traffic was the limit, and with a quarter of it the tiles come near the rate that
NumPy's product reaches on a core. Networks whose first layer BLAS multiplies gain nothing beyond noise, because each
batch is expanded first.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np

from common.data.dataset import Split
from common.problem import Problem
from stages.cpu import tiles
from stages.cpu.products import FEW_COLUMNS
from stages.engine.parts import resident_batches
from stages.engine.recipe import Data
from stages.engine.workspace import Array


class HostBytes(Data):
    """All images as bytes, and one batch in float32 where the first layer is wide."""

    needs: ClassVar[tuple[str, ...]] = ()
    pixel_bytes: ClassVar[int] = 1

    def __init__(self, device: Any, problem: Problem, train: Split) -> None:
        self.as_bytes = resident_batches(device, problem, train, as_bytes=True)
        is_wide = problem.layers[0].fan_out > FEW_COLUMNS
        self._expanded = device.empty((problem.batch_size, problem.inputs), np.float32) if is_wide else None
        self._expand = device.kernel("", "expand_pixels")

    def __len__(self) -> int:
        return len(self.as_bytes)

    def __iter__(self) -> Iterator[tuple[Array, Array]]:
        """Yield each batch, expanded if BLAS multiplies it."""
        for pixels, labels in self.as_bytes:
            yield self.expanded(pixels, slice(None)), labels

    def expanded(self, pixels: Array, images: slice) -> Array:
        """A batch (B, I) whose `images` are expanded if BLAS multiplies them."""
        if self._expanded is None:
            return pixels
        own, target = pixels[images], self._expanded[images]
        self._expand.run(own, target, own.size)
        return self._expanded


STAGE = tiles.STAGE.climb("cpu-bytes", "Images as bytes", words="images of one byte a pixel", data=HostBytes)
