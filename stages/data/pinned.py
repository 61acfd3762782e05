"""Pinned copies: images lie in page-locked host memory, which the device reads directly.

Why: a copy from ordinary memory takes the host's own time, mostly for a second copy from memory to memory.

Change: data. The host's images lie in page-locked memory, locked and filled during preparation. The device fetches a
batch while the host already launches the step's kernels.

Expect: a call of 4 us instead of 40 to 80: 50 us per step for softmax regression, where the copy, 8 to 16 us at 25 to
50 GB/s, fits into the device's idle time. Where the kernels are the bottleneck, a step takes these 8 to 16 us longer
than with resident images, since copy and kernels run one after the other.

Predict: on H200: 784-10, batch 128: 50 us.

Found: the host's copy goes, which gains most where it was longest: with batches of 2,048 and 256 hidden units a step is
more than three times as fast, and with batches of 128 no gain exceeds noise (study `data-path`). Now the device's copy
stands in line with the kernels, so that a large batch takes its whole time longer than with resident images.
"""

from __future__ import annotations

from typing import Any

from common.data.dataset import Split
from common.problem import Problem
from stages.data import pageable


class FromPinned(pageable.FromPageable):
    """Host batches in page-locked memory."""

    def __init__(self, device: Any, problem: Problem, train: Split) -> None:
        super().__init__(device, problem, train)
        self.host = device.page_locked(self.host)


STAGE = pageable.STAGE.climb("pinned", "Copy from pinned memory", data=FromPinned)
