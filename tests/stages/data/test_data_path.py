"""Batches that are copied ahead arrive in order, whatever the order in which two streams get to their work."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from numpy.typing import DTypeLike

from common.data.dataset import Split
from common.problem import Problem
from stages.data.host_batches import packed, unpacked
from stages.data.pinned_overlap import FromPinnedAhead
from tests.stages.engine.test_step import random_split
from tests.stages.numpy_parts import HostDevice

PROBLEM = Problem(inputs=5, classes=3, batch_size=4)
ORDERS = range(30)


class Event:
    """A mark as CUDA's: a wait is for the last record before it, and for nothing where there is none."""

    def __init__(self) -> None:
        self.last: object = None

    def record(self, stream: Stream) -> None:
        self.last = object()
        stream.queue.append(("mark", self.last))


class Stream:
    """Work that is done when somebody gets to it, in order."""

    def __init__(self) -> None:
        self.queue: deque[tuple[str, Any]] = deque()

    def wait_event(self, event: Event) -> None:
        if event.last is not None:
            self.queue.append(("wait", event.last))

    def enqueue(self, work: Callable[[], None]) -> None:
        self.queue.append(("work", work))


class TwoStreams(HostDevice):
    """A device whose streams take turns as chance will have it, all of it after everything has been enqueued."""

    def __init__(self) -> None:
        self.steps, self.copies = Stream(), Stream()
        self.stream = self.steps  # type: ignore[assignment]

    def side_stream(self) -> Stream:  # type: ignore[override]
        return self.copies

    def event(self) -> Event:  # type: ignore[override]
        return Event()

    def empty(self, shape: tuple[int, ...], dtype: DTypeLike) -> Any:
        array = super().empty(shape, dtype)
        self.steps.enqueue(partial(array.fill, 0))  # what its last owner still had to do with this memory
        return array

    def enqueue_copy(self, target: Any, address: int, stream: Any = None) -> None:
        copy = super().enqueue_copy
        (stream or self.steps).enqueue(lambda: copy(target, address))

    def run(self, order: int) -> None:
        random = np.random.default_rng(order)
        eagerness = random.choice([0.02, 0.5, 0.98])  # of the copies: far behind, abreast, far ahead
        passed: set[object] = set()
        queues = (self.steps.queue, self.copies.queue)
        while any(queues):
            ready = [queue for queue in queues if queue and (queue[0][0] != "wait" or queue[0][1] in passed)]
            assert ready, "both streams wait for each other"
            queue = queues[int(random.random() < eagerness)]
            kind, what = (queue if queue in ready else ready[0]).popleft()
            if kind == "mark":
                passed.add(what)
            elif kind == "work":
                what()


def seen(data: type[FromPinnedAhead], split: Split, order: int, epochs: int = 2) -> list[tuple[Any, Any]]:
    """What the steps of some epochs read, nothing of which had run before all was enqueued."""
    device = TwoStreams()
    batches = data(device, PROBLEM, split)
    read_batches: list[tuple[Any, Any]] = []

    def read(images: Any, labels: Any) -> None:
        read_batches.append((images.copy(), labels.copy()))

    for _ in range(epochs):
        for images, labels in batches:
            device.steps.enqueue(partial(read, images, labels))
    device.run(order)
    return read_batches


def all_right(data: type[FromPinnedAhead], split: Split, order: int) -> bool:
    steps = PROBLEM.steps(len(split.images))
    expected = [split.pixels()[at * 4 : at * 4 + 4] for at in range(steps)], split.labels[: steps * 4].reshape(-1, 4)
    batches = seen(data, split, order)
    assert len(batches) == 2 * steps
    return all(
        np.array_equal(images, right_images) and np.array_equal(labels, right_labels)
        for (images, labels), right_images, right_labels in zip(
            batches, itertools.cycle(expected[0]), itertools.cycle(expected[1]), strict=False
        )
    )


@pytest.mark.parametrize("steps", [1, 2, 3, 6])
def test_every_step_reads_its_own_batch(steps: int) -> None:
    split = random_split(4 * steps + 3, 5, 3)
    assert all(all_right(FromPinnedAhead, split, order) for order in ORDERS)


class NoWaitForTheBatch(FromPinnedAhead):
    def __init__(self, *setup: Any) -> None:
        super().__init__(*setup)
        self.arrived = (Event(), Event())
        self._unseen = (Event(), Event())

    def _fetch(self, buffer: int, address: int) -> None:
        self.copies.wait_event(self.used[buffer])
        self.device.enqueue_copy(self.buffers[buffer][0], address, self.copies)
        self._unseen[buffer].record(self.copies)


class NoWaitForTheReader(FromPinnedAhead):
    def _fetch(self, buffer: int, address: int) -> None:
        self.device.enqueue_copy(self.buffers[buffer][0], address, self.copies)
        self.arrived[buffer].record(self.copies)


class NoWaitForTheLastOwner(FromPinnedAhead):
    def __init__(self, *setup: Any) -> None:
        super().__init__(*setup)
        self.used = (Event(), Event())


class OneBuffer(FromPinnedAhead):
    def __init__(self, *setup: Any) -> None:
        super().__init__(*setup)
        self.buffers = (self.buffers[0], self.buffers[0])


@pytest.mark.parametrize("wrong", [NoWaitForTheBatch, NoWaitForTheReader, NoWaitForTheLastOwner, OneBuffer])
def test_a_data_path_made_wrong_is_caught(wrong: type[FromPinnedAhead]) -> None:
    split = random_split(24, 5, 3)
    assert not all(all_right(wrong, split, order) for order in ORDERS)


def test_a_row_holds_a_batch_s_images_and_labels() -> None:
    split = random_split(11, 5, 3)
    rows = packed(PROBLEM, split)
    assert rows.shape == (2, 24)
    images, labels = unpacked(rows[1], PROBLEM)
    np.testing.assert_array_equal(images, split.pixels()[4:8])
    np.testing.assert_array_equal(labels, split.labels[4:8])
    assert labels.dtype == np.int32
    assert np.shares_memory(images, rows)
    assert np.shares_memory(labels, rows)
