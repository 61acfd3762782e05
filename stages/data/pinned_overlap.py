"""Overlapped copies: the next batch is copied while the GPU trains on this one.

Why: on one stream copies and kernels alternate, though the device copies without multiprocessors.

Change: data. A second stream copies batch t + 1 into the other of two buffers during step t. Events keep the order: a
step waits for its batch, and a copy waits for the step that still reads its buffer.

Expect: hidden copies. Where the kernels are the bottleneck, its parent's extra 8 to 16 us per step disappear, and a
profile shows most of a copy beside kernels. No gain for softmax regression, where the host is the bottleneck: two
more records and two waits, of 1 us each, make it 3 to 5 us slower. Its kernels fill less than half of the time, so
less than half of a copy runs beside one.

Predict: on H200: 784-10, batch 128: 3 to 5 us more than pinned.

Found: a copy hides behind kernels that run already. Most of it does behind a wide layer's in batches of 2,048, where a
step takes as long as with resident images (study `data-path`). In small batches hardly any does, and the gain is noise:
the copy is enqueued first, and ends before the host has launched the step's first kernel.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from common.data.dataset import Split
from common.problem import Problem
from stages.data import pinned
from stages.data.host_batches import unpacked
from stages.engine.workspace import Array


class FromPinnedAhead(pinned.FromPinned):
    """Two device buffers, filled alternately by a second stream."""

    hides_copies = True

    def __init__(self, device: Any, problem: Problem, train: Split) -> None:
        super().__init__(device, problem, train)
        other = device.empty(self.batch.shape, np.float32)
        self.buffers = ((self.batch, self.views), (other, unpacked(other, problem)))
        self.copies = device.side_stream()
        self.arrived = (device.event(), device.event())
        self.used = (device.event(), device.event())
        for event in self.used:  # the memory's previous owner may still have kernels to run
            event.record(device.stream)

    def __iter__(self) -> Iterator[tuple[Array, Array]]:
        """Yield each batch after a wait for its arrival, with the next copy enqueued."""
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
        """Enqueue a batch's copy to a buffer, after the last step that read the buffer."""
        self.copies.wait_event(self.used[buffer])
        self.device.enqueue_copy(self.buffers[buffer][0], address, self.copies)
        self.arrived[buffer].record(self.copies)


STAGE = pinned.STAGE.climb("pinned-overlap", "Copy ahead on a second stream", data=FromPinnedAhead)
