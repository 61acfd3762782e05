"""Resident bytes: images stay as they are in their file, one byte a pixel, and each step expands its batch.

Why: a pixel has 8 bits of information, and takes 32. Four times as many images would fit.

Change: data. Images are kept in uint8; in front of each step one more kernel writes the batch in float32, divided by
256, to where the step reads it.

Expect: 141 MB less memory, and one launch more: 4 us a step where the host is the bound. On the device 1.5 us for a
kernel that reads 100 KB and writes 401 KB, all of which L2 holds; nothing is won by reading less from memory, since
the step's products read the 401 KB twice as before.

Found: 134 MiB less, and 1.1 us more for the kernels; the launch is not to be seen in a trial, 51 us against 52, where
the two runs of one process differ by 9.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np

from common.data.dataset import Split
from common.problem import Problem
from stages.data import r4_resident_f32
from stages.engine.parts import THREADS, blocks, int32
from stages.engine.recipe import Data
from stages.engine.workspace import KERNELS, Array


class ResidentUint8(Data):
    """All images as bytes on the device, and one batch of them in float32."""

    needs: ClassVar[tuple[str, ...]] = ("cuda",)

    def __init__(self, device: Any, problem: Problem, train: Split) -> None:
        batch = problem.batch_size
        used = train.first(problem.steps(len(train.images)) * batch)
        pixels, labels = device.upload(used.images), device.upload(used.labels.astype(np.int32))
        self._batches = [(pixels[at : at + batch], labels[at : at + batch]) for at in range(0, len(used.images), batch)]
        self._images = device.empty((batch, problem.inputs), np.float32)
        self._expand = device.kernel(KERNELS / "plain/pixels.cu", "expand_pixels")

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[tuple[Array, Array]]:
        """Each batch once its expansion has been enqueued."""
        size = self._images.size
        for pixels, labels in self._batches:
            self._expand(blocks(size), THREADS, pixels, self._images, int32(size))
            yield self._images, labels


STAGE = r4_resident_f32.STAGE.climb("resident-u8", "Keep the images as bytes", data=ResidentUint8)
