"""Kernels for the CPU, compiled by Numba: C functions that take their arguments as one row of 64-bit words.

A word is an address, a whole number, or the bits of a float64. With one form for all kernels, a step can be recorded
once as a list of functions and rows, and replayed without Python: `common.cpu.replay`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Literal

import numpy as np
from llvmlite import ir
from numba import carray, cfunc, config, njit, types
from numba.extending import intrinsic

from common.cache import cache_folder, cache_is_writable

KEEPS_CODE = bool(config.CACHE_DIR) or cache_is_writable()  # else each process compiles: Numba refuses to ignore it
config.CACHE_DIR = config.CACHE_DIR or str(cache_folder("numba"))

WORD = ir.IntType(64)
ROW = types.CPointer(types.int64)
SIGNATURE = types.void(ROW)
# Sums may be reordered, which vectors need; NaN and infinity keep their meaning.
REORDERED = {"reassoc", "contract", "nsz", "arcp"}
Order = Literal["as written", "any"]


def kernel(order: Order = "as written") -> Callable[[Callable[[Any], None]], Any]:
    """Compile a function of a row of words; `any` lets the compiler reorder sums, as vectors need."""
    compiled: Callable[[Callable[[Any], None]], Any] = cfunc(
        SIGNATURE, cache=KEEPS_CODE, fastmath=REORDERED if order == "any" else False
    )
    return compiled


def part(function: Callable[..., Any]) -> Any:
    """Compile a function that kernels call, into them."""
    return njit(inline="always")(function)


@intrinsic  # type: ignore[untyped-decorator]
def _pointer(typing: Any, address: Any) -> Any:  # noqa: ARG001
    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
        return builder.inttoptr(args[0], ir.IntType(8).as_pointer())

    return types.voidptr(types.int64), emit


@part
def floats(address: int, count: int) -> Any:
    """The float32 numbers at an address."""
    return carray(_pointer(address), count, np.float32)


@part
def doubles(address: int, count: int) -> Any:
    """The float64 numbers at an address."""
    return carray(_pointer(address), count, np.float64)


@part
def integers(address: int, count: int) -> Any:
    """The int32 numbers at an address."""
    return carray(_pointer(address), count, np.int32)


@part
def octets(address: int, count: int) -> Any:
    """The bytes at an address."""
    return carray(_pointer(address), count, np.uint8)


@part
def words(address: int, count: int) -> Any:
    """The 64-bit words at an address."""
    return carray(_pointer(address), count, np.int64)


@intrinsic  # type: ignore[untyped-decorator]
def number(typing: Any, word: Any) -> Any:  # noqa: ARG001
    """The float32 whose float64 bits are this word."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
        return builder.fptrunc(builder.bitcast(args[0], ir.DoubleType()), ir.FloatType())

    return types.float32(types.int64), emit


@intrinsic  # type: ignore[untyped-decorator]
def float_of_bits(typing: Any, bits: Any) -> Any:  # noqa: ARG001
    """The float32 with these bits, an int32."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
        return builder.bitcast(args[0], ir.FloatType())

    return types.float32(types.int32), emit


@intrinsic  # type: ignore[untyped-decorator]
def call(typing: Any, function: Any, row: Any) -> Any:  # noqa: ARG001
    """Call the kernel at an address with the row of words at another."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
        kind = ir.FunctionType(ir.VoidType(), [WORD.as_pointer()])
        builder.call(builder.inttoptr(args[0], kind.as_pointer()), [builder.inttoptr(args[1], WORD.as_pointer())])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), emit


@intrinsic  # type: ignore[untyped-decorator]
def call_library(typing: Any, function: Any, addresses: Any) -> Any:  # noqa: ARG001
    """Call the library's function at an address with pointers: a tuple of addresses, as Fortran's BLAS wants."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        byte = ir.IntType(8).as_pointer()
        count = len(signature.args[1])
        kind = ir.FunctionType(ir.VoidType(), [byte] * count)
        passed = [builder.inttoptr(builder.extract_value(args[1], at), byte) for at in range(count)]
        builder.call(builder.inttoptr(args[0], kind.as_pointer()), passed)
        return context.get_dummy_value()

    return types.void(types.int64, addresses), emit


@intrinsic  # type: ignore[untyped-decorator]
def atomic_add(typing: Any, address: Any, amount: Any) -> Any:  # noqa: ARG001
    """Add to the word at an address, in one indivisible step that all threads see in one order; its value before."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
        return builder.atomic_rmw("add", builder.inttoptr(args[0], WORD.as_pointer()), args[1], "seq_cst")

    return types.int64(types.int64, types.int64), emit


@intrinsic  # type: ignore[untyped-decorator]
def atomic_load(typing: Any, address: Any) -> Any:  # noqa: ARG001
    """The word at an address, as the last thread left it."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
        return builder.load_atomic(builder.inttoptr(args[0], WORD.as_pointer()), "seq_cst", 8)

    return types.int64(types.int64), emit


@intrinsic  # type: ignore[untyped-decorator]
def atomic_store(typing: Any, address: Any, value: Any) -> Any:  # noqa: ARG001
    """Set the word at an address for all threads."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
        builder.store_atomic(args[1], builder.inttoptr(args[0], WORD.as_pointer()), "seq_cst", 8)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), emit


@cache
def scalar_word(value: float, is_whole: bool) -> int:
    """A scalar as a word."""
    return int(value) if is_whole else int(np.float64(value).view(np.int64))


def word(argument: Any) -> int:
    """An argument of a kernel as a word: an array by its address, a float by its float64 bits."""
    if isinstance(argument, np.ndarray):
        return int(argument.ctypes.data)
    if isinstance(argument, float | np.floating):
        return scalar_word(float(argument), False)
    return int(argument)
