"""Pageable copies: the images stay in the host's ordinary memory, and each step copies its batch.

Why: the rungs keep all images on the GPU. Data that do not fit there have to be brought, and the host's memory as
malloc or NumPy hand it out is where they come from.

Change: data. A batch, images in float32 and labels, lies in one piece in the host's memory and is copied by one
cudaMemcpyAsync in front of its step, on the stream of the kernels.

Expect: the device cannot read memory that the system may move, so that the driver copies a batch's 402 KB into memory
of its own first, by the host's own hand, at 5 to 10 GB/s: 40 to 80 us in which nothing is launched, on top of the 45 us
of launching. 90 to 120 us a step for softmax regression, two to three times the rung below; 188 MB an epoch.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np

from common.data.dataset import Split
from common.problem import Problem
from stages.classic import r4_sparse_metrics
from stages.data.host_batches import packed, unpacked
from stages.engine.recipe import Data
from stages.engine.workspace import Array


class FromPageable(Data):
    """Memory for one batch on the device, which the next one overwrites."""

    needs: ClassVar[tuple[str, ...]] = ("cuda",)

    def __init__(self, device: Any, problem: Problem, train: Split) -> None:
        self.device = device
        self.host = packed(problem, train)
        self.batch = device.empty(self.host.shape[1:], np.float32)
        self.views = unpacked(self.batch, problem)

    def __len__(self) -> int:
        return len(self.host)

    def __iter__(self) -> Iterator[tuple[Array, Array]]:
        """Each batch once the copy to the device has been enqueued."""
        for address in self.addresses():
            self.device.enqueue_copy(self.batch, address)
            yield self.views

    def addresses(self) -> range:
        """Where each batch begins in the host's memory."""
        begin, size = self.host.ctypes.data, self.host.strides[0]
        return range(begin, begin + len(self.host) * size, size)


STAGE = r4_sparse_metrics.STAGE.climb("pageable", "Copy each batch", group="data", data=FromPageable)
