"""A stand-in for CuPy on NumPy: what CuPy refuses, or would wait for the device for, raises."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np


def _unwrapped(value: Any) -> Any:
    if isinstance(value, StrictArray):
        return value.held
    if isinstance(value, tuple | list):
        return type(value)(_unwrapped(item) for item in value)
    return value


def _wrapped(value: Any) -> Any:
    return StrictArray(np.asarray(value)) if isinstance(value, np.ndarray | np.generic) else value


class StrictArray:
    """An array that turns into one of NumPy by `get()` alone, and into numbers by `tolist()` alone."""

    __array_ufunc__ = None
    waits = 0  # for the device, of all arrays

    def __init__(self, held: Any) -> None:
        self.held = held

    def get(self, out: Any) -> Any:
        StrictArray.waits += 1
        out[...] = self.held
        return out

    def tolist(self) -> Any:
        StrictArray.waits += 1
        return self.held.tolist()

    def __len__(self) -> int:
        return len(self.held)

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.held, name)
        if not callable(value):
            return _wrapped(value)
        return lambda *arguments, **named: _wrapped(value(*_unwrapped(arguments), **named))

    def __getitem__(self, index: Any) -> StrictArray:
        part: StrictArray = _wrapped(self.held[_unwrapped(index)])
        return part

    def __setitem__(self, index: Any, value: Any) -> None:
        if isinstance(value, np.ndarray):
            raise TypeError("CuPy assigns no arrays of NumPy's")
        self.held[_unwrapped(index)] = _unwrapped(value)

    def _refused(self, *_: Any, **__: Any) -> Any:
        raise TypeError("an implicit conversion, or a wait for the device")

    __array__ = __bool__ = __float__ = __int__ = __index__ = __iter__ = _refused


def _operator(name: str) -> Callable[..., Any]:
    def apply(self: StrictArray, other: Any) -> Any:
        if isinstance(other, np.ndarray):
            raise TypeError("CuPy's arrays and NumPy's do not mix")
        result = getattr(self.held, name)(_unwrapped(other))
        if name.startswith("__i"):
            assert result is self.held
            return self
        return _wrapped(result)

    return apply


for _name in ("add", "sub", "mul", "truediv", "matmul", "and", "or", "xor"):
    for _kind in ("", "r", "i"):
        setattr(StrictArray, f"__{_kind}{_name}__", _operator(f"__{_kind}{_name}__"))
for _name in ("gt", "ge", "lt", "le", "eq"):
    setattr(StrictArray, f"__{_name}__", _operator(f"__{_name}__"))


class StrictModule:
    """NumPy's functions on such arrays; a function of arrays is repeated with copies of them, as a graph does."""

    LACKING = ("spacing", "errstate")

    def __getattr__(self, name: str) -> Any:
        if name in self.LACKING:
            raise AttributeError(name)
        function = getattr(np, name)

        def call(*arguments: Any, **named: Any) -> Any:
            if name not in ("array", "asarray") and any(isinstance(array, np.ndarray) for array in arguments):
                raise TypeError(f"CuPy's {name} refuses arrays of NumPy's")
            return _wrapped(function(*_unwrapped(arguments), **named))

        return call

    def repeated(self, function: Callable[..., None]) -> Callable[..., None]:
        inputs: list[Any] = []

        def call(*arrays: StrictArray) -> None:
            if not inputs:
                inputs.extend(StrictArray(array.held.copy()) for array in arrays)
            for copy, array in zip(inputs, arrays, strict=True):
                copy[...] = array
            function(*inputs)

        return call


class Device(StrictModule):
    """A GPU's array module whose products are its library's."""

    stream = nullcontext()
    product: Any = staticmethod(np.matmul)

    def matmul(self, left: StrictArray, right: StrictArray) -> Any:
        return StrictArray(Device.product(left.held, right.held))
