"""Matrix products of any shape: one scalar loop nest, or the BLAS library."""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from common.cpu.compiled import call_library, floats, kernel, number, words


# Kind: gemm.
@kernel()
def product(row):
    """Out = alpha * a @ b + beta * out, one output after the other.

    Row: a, its strides, b, its strides, out, its strides, m, n, k, alpha, beta; strides in numbers, by row and column.
    """
    m, n, k, alpha, beta = row[9], row[10], row[11], number(row[12]), number(row[13])
    a = floats(row[0], (m - 1) * row[1] + (k - 1) * row[2] + 1)
    b = floats(row[3], (k - 1) * row[4] + (n - 1) * row[5] + 1)
    out = floats(row[6], (m - 1) * row[7] + (n - 1) * row[8] + 1)
    for i in range(m):
        for j in range(n):
            total = a[i * row[1]] * b[j * row[5]]
            for at in range(1, k):
                total += a[i * row[1] + at * row[2]] * b[at * row[4] + j * row[5]]
            place = i * row[7] + j * row[8]
            out[place] = alpha * total + (beta * out[place] if beta != 0 else 0)


# Kind: gemm.
@kernel()
def blas_product(row):
    """Fortran's sgemm. Row: its address, and the addresses of its thirteen arguments."""
    a = words(row[1], 13)
    call_library(row[0], (a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11], a[12]))
