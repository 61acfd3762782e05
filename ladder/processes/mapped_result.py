"""Hands a process's result to its parent with arrays in memory that both map: a pipe copies them four times."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from functools import partial
from mmap import mmap
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from common.arrays import by_blocks

ALIGNMENT = 64  # bytes


class Packed(NamedTuple):
    """A result without its arrays, the file in memory that has them, and the bytes there of each."""

    raw: bytes
    path: str
    places: list[slice]


def packed(job: Callable[[], Any]) -> Packed:
    """Do a job and pack its result, for as long as this process lives."""
    buffers: list[pickle.PickleBuffer] = []
    raw, places, end = pickle.dumps(job(), protocol=5, buffer_callback=buffers.append), list[slice](), 0
    for buffer in buffers:
        places.append(slice(end, end + buffer.raw().nbytes))
        end = -(-places[-1].stop // ALIGNMENT) * ALIGNMENT
    descriptor = os.memfd_create("result")
    os.truncate(descriptor, end + 1)  # a map has a byte or more
    memory = np.frombuffer(mmap(descriptor, 0), np.uint8)
    for buffer, place in zip(buffers, places, strict=True):
        part = np.frombuffer(buffer.raw(), np.uint8)
        by_blocks(partial(_copy, memory[place], part), part.size)
    return Packed(raw, f"/proc/{os.getpid()}/fd/{descriptor}", places)


def _copy(target: Any, source: Any, begin: int, end: int) -> None:
    target[begin:end] = source[begin:end]


def unpacked(result: Packed) -> Any:
    """The result of a child that still lives."""
    with Path(result.path).open("r+b") as file:
        memory = memoryview(mmap(file.fileno(), 0))
    return pickle.loads(result.raw, buffers=[memory[place] for place in result.places])
