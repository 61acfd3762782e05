"""Resident bytes: images stay on the GPU as bytes, and every step expands its batch to float32.

Why: a pixel has 8 bits of information and takes 32. Four times as many images would fit.

Change: data. Images are uint8. Before each step one more kernel writes the batch as float32, divided by 256, where
the step reads it.

Expect: 141 MB less memory, and one more launch: 4 us per step where the host is the bottleneck. On the device 1.5 us
for a kernel that reads 100 KB and writes 401 KB, all in L2. Reading less from memory gains nothing, since the step's
products still read the 401 KB twice.

Predict: on H200: 784-10, batch 128: 4 us more than resident-f32.

Found: images take a quarter of the memory, for one launch and a short kernel a step, whose cost does not exceed the
noise at any point of the study `data-path`. No time is gained, as expected, since products still read the batch as
float32. It pays where memory is short.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from common.data.dataset import Split
from common.problem import Problem
from stages.data import resident_f32
from stages.engine.parts import THREADS, blocks, int32, resident_batches
from stages.engine.recipe import Data
from stages.engine.workspace import KERNELS, Array


class ResidentUint8(Data):
    """All images as bytes on the device, and one batch in float32."""

    def __init__(self, device: Any, problem: Problem, train: Split) -> None:
        self._batches = resident_batches(device, problem, train, as_bytes=True)
        self._images = device.empty((problem.batch_size, problem.inputs), np.float32)
        self._expand = device.kernel(KERNELS / "plain/pixels.cu", "expand_pixels")

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[tuple[Array, Array]]:
        """Yield each batch after its expansion is enqueued."""
        size = self._images.size
        for pixels, labels in self._batches:
            self._expand(blocks(size), THREADS, pixels, self._images, int32(size))
            yield self._images, labels


STAGE = resident_f32.STAGE.climb("resident-u8", "Keep the images as bytes", data=ResidentUint8)
