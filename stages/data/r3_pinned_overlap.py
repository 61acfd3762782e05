"""Overlapped copies: the next batch travels while the device works on this one.

Why: on one stream a copy and the kernels take turns, though the device has engines for copies that need no
multiprocessor.

Change: data. A second stream copies batch t + 1 into the other of two buffers while step t runs. Events keep the order:
a step waits for its batch to have arrived, a copy for the step that reads its buffer to be done.

Expect: copies hidden: where the kernels are the bound, the 8 to 16 us a step of the rung below are gone, and a profile
shows most of a copy's time beside kernels. For softmax regression nothing to win, as the host is the bound: two
records and two waits more, of 1 us each, make it 3 to 5 us slower than the rung below. Its kernels fill less than half
of the time, so that less than half of a copy will be seen beside one.

Found: 4 us slower in a trial, as expected, but not half of a copy is hidden: 0.4 % of its time. The copy is handed over
first, and takes 9.9 us, in which the host has not launched the first kernel of the step yet.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from common.data.dataset import Split
from common.problem import Problem
from stages.data import r2_pinned
from stages.data.host_batches import unpacked
from stages.engine.workspace import Array


class FromPinnedAhead(r2_pinned.FromPinned):
    """Two buffers on the device, filled in turns by a stream of their own."""

    def __init__(self, device: Any, problem: Problem, train: Split) -> None:
        super().__init__(device, problem, train)
        other = device.empty(self.batch.shape, np.float32)
        self.buffers = ((self.batch, self.views), (other, unpacked(other, problem)))
        self.copies = device.side_stream()
        self.arrived = (device.event(), device.event())
        self.used = (device.event(), device.event())
        for event in self.used:  # by who had this memory before: its last kernels may still be waiting to run
            event.record(device.stream)

    def __iter__(self) -> Iterator[tuple[Array, Array]]:
        """Each batch once its arrival is waited for, and the next one is on its way."""
        addresses, steps = self.addresses(), self.device.stream
        self._fetch(0, addresses[0])
        for step in range(len(addresses)):
            here = step % 2
            if step + 1 < len(addresses):
                self._fetch(1 - here, addresses[step + 1])
            steps.wait_event(self.arrived[here])
            yield self.buffers[here][1]
            self.used[here].record(steps)

    def _fetch(self, buffer: int, address: int) -> None:
        """Enqueue the copy of a batch to one of the buffers, behind the step that last read that."""
        self.copies.wait_event(self.used[buffer])
        self.device.enqueue_copy(self.buffers[buffer][0], address, self.copies)
        self.arrived[buffer].record(self.copies)


STAGE = r2_pinned.STAGE.climb("pinned-overlap", "Copy ahead on a second stream", data=FromPinnedAhead)
