"""Pinned copies: the same copies from memory that the device reads by itself.

Why: a copy from ordinary memory takes the host's own time, and most of it goes into copying from memory to memory.

Change: data. The host's images lie in page-locked memory, locked and filled while preparing. The device fetches a
batch while the host already launches the step's kernels.

Expect: a call of 4 us instead of one of 40 to 80: 50 us a step for softmax regression, where the host launches for so
long that the copy, 8 to 16 us at 25 to 50 GB/s, fits into what the device idles. Where the kernels are the bound, a
step takes these 8 to 16 us longer than with resident images, since the stream does one after the other.
"""

from __future__ import annotations

from typing import Any

from common.data.dataset import Split
from common.problem import Problem
from stages.data import r1_pageable


class FromPinned(r1_pageable.FromPageable):
    """The host's batches in page-locked memory."""

    def __init__(self, device: Any, problem: Problem, train: Split) -> None:
        super().__init__(device, problem, train)
        self.host = device.page_locked(self.host)


STAGE = r1_pageable.STAGE.climb("pinned", "Copy from pinned memory", data=FromPinned)
