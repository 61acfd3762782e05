"""Tensors with memory from a CUDA allocator for the length of one step."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import DTypeLike


class Tensor:
    """A tensor with a fixed shape and temporary memory.

    `data` holds the memory, with its address `ptr`. It is None outside of a step, so that any use there fails.
    """

    __slots__ = ("data", "dtype", "nbytes", "shape", "size")

    def __init__(self, shape: tuple[int, ...], dtype: DTypeLike) -> None:
        self.shape = shape
        self.dtype = np.dtype(dtype)
        self.size = math.prod(shape)
        self.nbytes = self.size * self.dtype.itemsize
        self.data: Any = None

    def __getitem__(self, part: slice) -> Tensor:
        """A view of part of a one-dimensional tensor."""
        begin, end, _ = part.indices(self.size)
        view = Tensor((end - begin,), self.dtype)
        view.data = _View(self, begin * self.dtype.itemsize)
        return view

    def reshape(self, shape: tuple[int, ...]) -> Tensor:
        """A view with another shape and the same begin."""
        view = Tensor(shape, self.dtype)
        view.data = self.data if isinstance(self.data, _View) else _View(self, 0)
        return view


class _View:
    """An address relative to a tensor's current memory."""

    __slots__ = ("_offset", "_whole")

    def __init__(self, whole: Tensor, offset: int) -> None:
        self._whole = whole
        self._offset = offset

    @property
    def ptr(self) -> int:
        """The current address."""
        address: int = self._whole.data.ptr
        return address + self._offset


class StepAllocator:
    """Tensors of one allocator that acquire and release their memory together.

    `allocate(bytes)` returns device memory with an address `ptr`; dropping the last reference frees it.
    """

    def __init__(self, allocate: Callable[[int], Any]) -> None:
        self._allocate = allocate
        self._tensors: list[Tensor] = []

    def empty(self, shape: tuple[int, ...], dtype: DTypeLike) -> Tensor:
        """A tensor without memory."""
        tensor = Tensor(shape, dtype)
        self._tensors.append(tensor)
        return tensor

    def acquire(self) -> None:
        """Allocate every tensor, one call each."""
        for tensor in self._tensors:
            tensor.data = self._allocate(tensor.nbytes)

    def release(self) -> None:
        """Free every tensor, one call each."""
        for tensor in self._tensors:
            tensor.data = None
