"""Kernels that reach one limit of a core each: its reads, its writes, its multiply-adds, calls of a library."""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from numba import cfunc

from common.cpu.compiled import KEEPS_CODE, SIGNATURE, call_library, floats, kernel, number, part, words

MULTIPLY_ADDS = 16  # of each number in a pass, so that loads and stores are few beside them


@kernel()
def nothing(row):
    """Return at once."""


@kernel()
def read(row):
    """Read an array a number of times. Row: array, its 64-bit words, times, where to leave a word made of all."""
    count = row[1]
    array, seen = words(row[0], count), words(row[3], 1)
    for _ in range(row[2]):
        total = seen[0]
        for at in range(count):
            total |= array[at]
        seen[0] = total ^ 1


@kernel()
def write(row):
    """Write an array a number of times. Row: array, its float32 numbers, times."""
    count = row[1]
    array = floats(row[0], count)
    for time in range(row[2]):
        value = array[0] + time
        for at in range(count):
            array[at] = value


@part
def multiply_add(x, a, b):
    """Sixteen multiply-adds, each of which needs the one before."""
    x = ((x * a + b) * a + b) * a + b
    x = ((x * a + b) * a + b) * a + b
    x = ((x * a + b) * a + b) * a + b
    x = ((x * a + b) * a + b) * a + b
    x = ((x * a + b) * a + b) * a + b
    return x * a + b


def _multiply_adds(row):
    """Multiply and add each number of an array sixteen times, and repeat it all. Row: array, count, times, a, b.

    Four numbers at once, so that no multiply-add waits for the one before.
    """
    quarter, a, b = row[1] // 4, number(row[3]), number(row[4])
    first = floats(row[0], row[1])
    second, third, fourth = first[quarter:], first[2 * quarter :], first[3 * quarter :]
    for _ in range(row[2]):
        for at in range(quarter):
            w, x, y, z = first[at], second[at], third[at], fourth[at]
            first[at], second[at] = multiply_add(w, a, b), multiply_add(x, a, b)
            third[at], fourth[at] = multiply_add(y, a, b), multiply_add(z, a, b)


# May be contracted, not reordered: a compiler that may reorder could fold the sixteen into one.
multiply_adds = cfunc(SIGNATURE, cache=KEEPS_CODE, fastmath={"contract"})(_multiply_adds)


@kernel()
def call_blas(row):
    """Call Fortran's sgemm a number of times. Row: its address, the addresses of its thirteen arguments, times."""
    a = words(row[1], 13)
    for _ in range(row[2]):
        call_library(row[0], (a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11], a[12]))
