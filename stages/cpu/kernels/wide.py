"""Products of any width by tiles that stay in registers; weights are stored by unit, (O, I), and nothing is packed."""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import numpy as np

from common.cpu.compiled import floats, kernel, number
from common.cpu.vectors import BYTES, LANES, inner_tile, outer_tile

COLUMNS = 2 * LANES  # of a tile of `outer_product`
outer_6x2, outer_2x2, outer_1x2 = outer_tile(6, 2), outer_tile(2, 2), outer_tile(1, 2)
outer_6x1, outer_1x1 = outer_tile(6, 1), outer_tile(1, 1)
inner_2x6, inner_2x2, inner_1x1 = inner_tile(2, 6), inner_tile(2, 2), inner_tile(1, 1)


# Kind: gemm.
@kernel()
def outer_product(row):
    """Out (M, N) = alpha * a (M, K) @ b (K, N), or added to it; rows of b and out are contiguous.

    Row: a, its strides, b, ld, out, ld, M, N, K, alpha, whether to add. Any M, N, and K >= 1.
    """
    a, a_row, a_term, b, b_term, out, out_row = row[0], row[1] * 4, row[2] * 4, row[3], row[4] * 4, row[5], row[6] * 4
    m, n, k, alpha, adds = row[7], row[8], row[9], number(row[10]), row[11]
    for j in range(0, n // COLUMNS * COLUMNS, COLUMNS):
        i, right, place = 0, b + j * BYTES, out + j * BYTES
        while i + 6 <= m:
            outer_6x2(a + i * a_row, a_row, a_term, right, b_term, k, place + i * out_row, out_row, alpha, adds)
            i += 6
        while i + 2 <= m:
            outer_2x2(a + i * a_row, a_row, a_term, right, b_term, k, place + i * out_row, out_row, alpha, adds)
            i += 2
        if i < m:
            outer_1x2(a + i * a_row, a_row, a_term, right, b_term, k, place + i * out_row, out_row, alpha, adds)
    done = n // COLUMNS * COLUMNS
    if done + LANES <= n:
        i, right, place = 0, b + done * BYTES, out + done * BYTES
        while i + 6 <= m:
            outer_6x1(a + i * a_row, a_row, a_term, right, b_term, k, place + i * out_row, out_row, alpha, adds)
            i += 6
        while i < m:
            outer_1x1(a + i * a_row, a_row, a_term, right, b_term, k, place + i * out_row, out_row, alpha, adds)
            i += 1
        done += LANES
    if done < n:
        left = floats(a, (m - 1) * row[1] + (k - 1) * row[2] + 1)
        factors, target = floats(b, (k - 1) * row[4] + n), floats(out, (m - 1) * row[6] + n)
        for i in range(m):
            for j in range(done, n):
                total = np.float32(0)
                for t in range(k):
                    total += left[i * row[1] + t * row[2]] * factors[t * row[4] + j]
                target[i * row[6] + j] = alpha * total + (target[i * row[6] + j] if adds else np.float32(0))


# Kind: gemm.
@kernel()
def inner_product(row):
    """Out (B, O) = inputs (B, I) @ weights (O, I).T. Row: inputs, ld, weights, ld, out, ld, B, O, I."""
    a, a_row, b, b_row, out, out_row = row[0], row[1] * 4, row[2], row[3] * 4, row[4], row[5] * 4
    m, n, k = row[6], row[7], row[8]
    vectors, pairs = k // LANES, m // 2 * 2
    if vectors:
        c = 0
        while c + 6 <= n:
            for r in range(0, pairs, 2):
                inner_2x6(a + r * a_row, a_row, b + c * b_row, b_row, vectors, out + r * out_row + c * BYTES, out_row)
            c += 6
        while c + 2 <= n:
            for r in range(0, pairs, 2):
                inner_2x2(a + r * a_row, a_row, b + c * b_row, b_row, vectors, out + r * out_row + c * BYTES, out_row)
            c += 2
        if c < n:
            for r in range(pairs):
                inner_1x1(a + r * a_row, a_row, b + c * b_row, b_row, vectors, out + r * out_row + c * BYTES, out_row)
        if pairs < m:
            for c in range(n):
                place = out + pairs * out_row + c * BYTES
                inner_1x1(a + pairs * a_row, a_row, b + c * b_row, b_row, vectors, place, out_row)
    if vectors * LANES < k:
        inputs, weights = floats(a, (m - 1) * row[1] + k), floats(b, (n - 1) * row[3] + k)
        target = floats(out, (m - 1) * row[5] + n)
        for r in range(m):
            for c in range(n):
                total = target[r * row[5] + c] if vectors else np.float32(0)
                for t in range(vectors * LANES, k):
                    total += inputs[r * row[1] + t] * weights[c * row[3] + t]
                target[r * row[5] + c] = total
