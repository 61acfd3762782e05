"""NumPy's arrays: in files, in memory of the C library, and large ones by several threads."""

from __future__ import annotations

import ctypes
import math
import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from typing import Any, BinaryIO, TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

from common.cpu.cores import usable_cores
from common.files import naming

LOADING = Lock()  # NumPy parses a header by `ast`, which fails in several threads at once (python/cpython#106905)
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # malloc.h of the GNU C library
KEPT_BYTES = 1 << 30
BLOCK_ELEMENTS, FEWEST_BLOCKS = 1 << 20, 3  # of a thread at a time; and those that are worth several threads
PAGE_BYTES = 4096
T = TypeVar("T")


def by_blocks(work: Callable[[int, int], T], size: int) -> list[T]:
    """`work(begin, end)` for each block of `BLOCK_ELEMENTS`, in order; all cores share a large array."""
    begins = range(0, size, BLOCK_ELEMENTS)
    ends = [min(begin + BLOCK_ELEMENTS, size) for begin in begins]
    if len(begins) < FEWEST_BLOCKS:
        return list(map(work, begins, ends))
    with ThreadPoolExecutor(min(len(begins), usable_cores())) as threads:
        return list(threads.map(work, begins, ends))


def touched(shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
    """An array of any values in memory that is there: some virtual machines give a core half a GiB of it a second."""
    array = np.empty(shape, dtype)
    flat = array.reshape(-1)

    def touch(begin: int, end: int) -> None:
        flat[begin : end : PAGE_BYTES // flat.itemsize] = 0

    by_blocks(touch, flat.size)
    return array


def copied(array: NDArray[Any], dtype: DTypeLike | None = None) -> NDArray[Any]:
    """A copy in C's order, converted if there is a `dtype`."""
    copy = touched(array.shape, dtype or array.dtype)
    np.copyto(copy, array, casting="unsafe")
    return copy


def fitted(array: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """The array in a shape of as many axes: itself, or a copy cut off or with zeros behind."""
    if array.shape == shape:
        return array
    copy = np.zeros(shape, array.dtype)
    both = tuple(slice(min(sizes)) for sizes in zip(array.shape, shape, strict=True))
    copy[both] = array[both]
    return copy


def write_arrays(path: Path, *arrays: NDArray[Any]) -> None:
    """Write arrays one after the other, each as `np.load` reads it; raises OSError, which names the file.

    `np.save` says of a full disk that bytes were "requested", without an error number.
    """
    with naming(path), path.open("wb") as file:
        for array in map(np.ascontiguousarray, arrays):
            np.lib.format.write_array_header_1_0(file, np.lib.format.header_data_from_array_1_0(array))
            file.write(array.data)


def read_array(file: BinaryIO) -> NDArray[Any]:
    """The next array that `write_arrays` has written; raises ValueError or another error if there is none."""
    np.lib.format.read_magic(file)
    shape, is_fortran, dtype = np.lib.format.read_array_header_1_0(file)
    left = os.fstat(file.fileno()).st_size - file.tell()
    if is_fortran or dtype.hasobject or not 0 <= math.prod(shape) * dtype.itemsize <= left:
        raise ValueError(f"no array of shape {shape} and {dtype} in {left} bytes")
    array = touched(shape, dtype)
    file.readinto(array.data)  # type: ignore[attr-defined]
    return array


def keep_freed_memory() -> None:
    """Keep freed memory in this process, up to 1 GiB; without effect where the C library cannot.

    Otherwise Linux clears the pages of a gradient anew in every step, which takes up to a seventh of the oracle's time.
    """
    if sys.platform == "linux" and (mallopt := getattr(ctypes.CDLL(None), "mallopt", None)) is not None:
        mallopt(M_MMAP_THRESHOLD, KEPT_BYTES)
        mallopt(M_TRIM_THRESHOLD, KEPT_BYTES)
