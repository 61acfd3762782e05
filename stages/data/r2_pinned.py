"""Pinned copies: images lie in page-locked host memory, which the device reads directly.

Why: a copy from ordinary memory takes the host's own time, mostly for a second copy from memory to memory.

Change: data. The host's images lie in page-locked memory, locked and filled during preparation. The device fetches a
batch while the host already launches the step's kernels.

Expect: a call of 4 us instead of 40 to 80: 50 us a step for softmax regression, where the copy, 8 to 16 us at 25 to
50 GB/s, fits into the device's idle time. Where the kernels are the bottleneck, a step takes these 8 to 16 us longer
than with resident images, since copy and kernels run one after the other.

Predict: on H200: 784-10, batch 128: 50 us.

Found: recorded on an H200 (study `data-path`): 176 us instead of 218 for 784-256-10 with batches of 128, 163 instead of
237 for 784-4096-10; 241 instead of 883 with batches of 2,048 and a hidden layer of 256, 912 instead of 1,349 with one
of 4,096. A batch of 128 takes the device 10 us, one of 2,048 takes 124, and the latter adds about that much to resident
images' 119 and 787 us.
"""

from __future__ import annotations

from typing import Any

from common.data.dataset import Split
from common.problem import Problem
from stages.data import r1_pageable


class FromPinned(r1_pageable.FromPageable):
    """Host batches in page-locked memory."""

    def __init__(self, device: Any, problem: Problem, train: Split) -> None:
        super().__init__(device, problem, train)
        self.host = device.page_locked(self.host)


STAGE = r1_pageable.STAGE.climb("pinned", "Copy from pinned memory", data=FromPinned)
