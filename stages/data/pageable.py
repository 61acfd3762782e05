"""Pageable copies: images stay in ordinary host memory, and every step copies its batch.

Why: the rungs keep all images on the GPU. Larger data sets have to be copied, and ordinary host memory, from malloc
or NumPy, is where they usually are.

Change: data. A batch's float32 images and labels are contiguous in host memory. One cudaMemcpyAsync copies them
before the step, on the kernels' stream.

Expect: the device cannot read memory that the system may move. The driver first copies a batch's 402 KB into its own
memory, on the host, at 5 to 10 GB/s: 40 to 80 us without launches, on top of the 45 us of launches. 90 to 120 us a
step for softmax regression, two to three times its parent; 188 MB an epoch.

Predict: on H200: 784-10, batch 128: 90 to 120 us.

Found: the host pays, as expected: the driver copies each batch into its own memory first, and launches nothing
meanwhile. With batches of 2,048 that copy is most of a step (study `data-path`), and with 256 hidden units a step takes
more than five times as long as with resident images. No copy runs beside a kernel.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from common.data.dataset import Split
from common.problem import Problem
from stages.classic import sparse_metrics
from stages.data.host_batches import packed, unpacked
from stages.engine.recipe import Data
from stages.engine.workspace import Array


class FromPageable(Data):
    """Device memory for one batch; each batch overwrites the last."""

    def __init__(self, device: Any, problem: Problem, train: Split) -> None:
        self.device = device
        self.host = packed(problem, train)
        self.batch = device.empty(self.host.shape[1:], np.float32)
        self.views = unpacked(self.batch, problem)

    def __len__(self) -> int:
        return len(self.host)

    def __iter__(self) -> Iterator[tuple[Array, Array]]:
        """Yield each batch after its copy to the device is enqueued."""
        for address in self.addresses():
            self.device.enqueue_copy(self.batch, address)
            yield self.views

    def addresses(self) -> range:
        """Host address of each batch."""
        begin, size = self.host.ctypes.data, self.host.strides[0]
        return range(begin, begin + len(self.host) * size, size)


STAGE = sparse_metrics.STAGE.climb("pageable", "Copy each batch", group="data", data=FromPageable)
