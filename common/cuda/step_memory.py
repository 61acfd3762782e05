"""Tensors whose memory comes and goes: taken from one of CUDA's allocators before a step, and given back after it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import DTypeLike


class Tensor:
    """A tensor as kernels are told of it: its shape stays, its memory does not.

    `data` is what holds the memory, with the address `ptr`; None while there is none, so that whoever comes too early
    or too late fails.
    """

    __slots__ = ("data", "dtype", "nbytes", "shape", "size")

    def __init__(self, shape: tuple[int, ...], dtype: DTypeLike) -> None:
        self.shape = shape
        self.dtype = np.dtype(dtype)
        self.size = math.prod(shape)
        self.nbytes = self.size * self.dtype.itemsize
        self.data: Any = None

    def __getitem__(self, part: slice) -> Tensor:
        """A view of a part of a tensor of one dimension."""
        begin, end, _ = part.indices(self.size)
        view = Tensor((end - begin,), self.dtype)
        view.data = _Within(self, begin * self.dtype.itemsize)
        return view

    def reshape(self, shape: tuple[int, ...]) -> Tensor:
        """A view of another shape; that of a whole tensor begins where it does."""
        view = Tensor(shape, self.dtype)
        view.data = self.data if isinstance(self.data, _Within) else _Within(self, 0)
        return view


class _Within:
    """An address that moves with a tensor's."""

    __slots__ = ("_offset", "_whole")

    def __init__(self, whole: Tensor, offset: int) -> None:
        self._whole = whole
        self._offset = offset

    @property
    def ptr(self) -> int:
        """Where the part begins now."""
        address: int = self._whole.data.ptr
        return address + self._offset


class StepAllocator:
    """Tensors of one allocator, all of which take and give back their memory together.

    `allocate` takes so many bytes of the device; they have an address, `ptr`, and go back when nobody holds them.
    """

    def __init__(self, allocate: Callable[[int], Any]) -> None:
        self._allocate = allocate
        self._tensors: list[Tensor] = []

    def empty(self, shape: tuple[int, ...], dtype: DTypeLike) -> Tensor:
        """A tensor that has no memory yet."""
        tensor = Tensor(shape, dtype)
        self._tensors.append(tensor)
        return tensor

    def acquire(self) -> None:
        """Memory for each of them, one call each."""
        for tensor in self._tensors:
            tensor.data = self._allocate(tensor.nbytes)

    def release(self) -> None:
        """The memory of each of them, one call each."""
        for tensor in self._tensors:
            tensor.data = None
