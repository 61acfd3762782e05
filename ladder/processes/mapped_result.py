"""Hands a process's result to its parent with arrays in memory that both map: a pipe copies them four times."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from itertools import accumulate
from mmap import mmap
from typing import Any, NamedTuple

import numpy as np

from common.arrays import by_blocks

ALIGNMENT = 64  # bytes


class Packed(NamedTuple):
    """A result without its arrays, the file in memory that has them, and how many bytes each takes."""

    raw: bytes
    path: str
    sizes: list[int]


def packed(job: Callable[[], Any]) -> Packed:
    """Do a job and pack its result, for as long as this process lives."""
    buffers: list[pickle.PickleBuffer] = []
    raw = pickle.dumps(job(), protocol=5, buffer_callback=buffers.append)
    parts = [np.frombuffer(buffer.raw(), np.uint8) for buffer in buffers]
    sizes = [part.size for part in parts]
    begins = _begins(sizes)
    descriptor = os.memfd_create("result")
    os.truncate(descriptor, begins[-1] + 1)  # a map has a byte or more
    memory = np.frombuffer(mmap(descriptor, 0), np.uint8)
    for begin, part in zip(begins, parts, strict=False):
        target = memory[begin : begin + part.size]

        def copy(first: int, last: int, target: Any = target, part: Any = part) -> None:
            target[first:last] = part[first:last]

        by_blocks(copy, part.size)
    return Packed(raw, f"/proc/{os.getpid()}/fd/{descriptor}", sizes)


def unpacked(result: Packed) -> Any:
    """The result of a child that still lives."""
    descriptor = os.open(result.path, os.O_RDWR)
    try:
        memory = memoryview(mmap(descriptor, 0))
    finally:
        os.close(descriptor)
    begins = _begins(result.sizes)
    return pickle.loads(
        result.raw, buffers=[memory[begin : begin + size] for begin, size in zip(begins, result.sizes, strict=False)]
    )


def _begins(sizes: list[int]) -> list[int]:
    """Where each array begins, and where the last one ends."""
    return list(accumulate((-(-size // ALIGNMENT) * ALIGNMENT for size in sizes), initial=0))
