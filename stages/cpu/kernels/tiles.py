"""Products with few columns, such as ten classes, by loops over pixels that vectors compute.

Weights are stored by class, (O, I): each class has its pixels in a row. Pixels may be float32, or bytes of 256ths.
Tiles keep their sums in registers: two images by five classes, or eight images by two classes.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import numpy as np

from common.cpu.compiled import floats, kernel, number, octets, part

IMAGES = 8  # of a tile of the update
PIXEL = np.float32(1 / 256)


@part
def two_by_five(p, q, w, pixels, ld, scale, out, at, cols):
    """Two rows by five columns of a product."""
    w0, w1, w2, w3, w4 = w, w[ld:], w[2 * ld :], w[3 * ld :], w[4 * ld :]
    a0 = a1 = a2 = a3 = a4 = b0 = b1 = b2 = b3 = b4 = np.float32(0)
    for i in range(pixels):
        x, y = np.float32(p[i]), np.float32(q[i])
        a0 += x * w0[i]
        a1 += x * w1[i]
        a2 += x * w2[i]
        a3 += x * w3[i]
        a4 += x * w4[i]
        b0 += y * w0[i]
        b1 += y * w1[i]
        b2 += y * w2[i]
        b3 += y * w3[i]
        b4 += y * w4[i]
    out[at], out[at + 1], out[at + 2], out[at + 3], out[at + 4] = (
        a0 * scale,
        a1 * scale,
        a2 * scale,
        a3 * scale,
        a4 * scale,
    )
    at += cols
    out[at], out[at + 1], out[at + 2], out[at + 3], out[at + 4] = (
        b0 * scale,
        b1 * scale,
        b2 * scale,
        b3 * scale,
        b4 * scale,
    )


@part
def one_by_one(p, w, pixels, scale):
    """One number of a product."""
    total = np.float32(0)
    for i in range(pixels):
        total += np.float32(p[i]) * w[i]
    return total * scale


@part
def multiply(images, ld_images, weights, ld, out, rows, cols, pixels, scale):
    """Out (rows, cols) = scale * images (rows, pixels) @ weights (cols, pixels).T."""
    pairs, fives = rows // 2 * 2, cols // 5 * 5
    for r in range(0, pairs, 2):
        p, q = images[r * ld_images :], images[(r + 1) * ld_images :]
        for c in range(0, fives, 5):
            two_by_five(p, q, weights[c * ld :], pixels, ld, scale, out, r * cols + c, cols)
        for c in range(fives, cols):
            out[r * cols + c] = one_by_one(p, weights[c * ld :], pixels, scale)
            out[(r + 1) * cols + c] = one_by_one(q, weights[c * ld :], pixels, scale)
    if pairs < rows:
        for c in range(cols):
            out[pairs * cols + c] = one_by_one(images[pairs * ld_images :], weights[c * ld :], pixels, scale)


# Kind: gemm.
@kernel(order="any")
def rows_by_columns(row):
    """Out (B, O) = inputs (B, I) @ weights (O, I).T. Row: inputs, ld, weights, ld, out, B, O, I."""
    rows, cols, pixels = row[5], row[6], row[7]
    inputs, weights = floats(row[0], rows * row[1]), floats(row[2], cols * row[3])
    multiply(inputs, row[1], weights, row[3], floats(row[4], rows * cols), rows, cols, pixels, np.float32(1))


# Kind: gemm.
@kernel(order="any")
def rows_by_columns_u8(row):
    """The same with inputs as bytes of 256ths."""
    rows, cols, pixels = row[5], row[6], row[7]
    inputs, weights = octets(row[0], rows * row[1]), floats(row[2], cols * row[3])
    multiply(inputs, row[1], weights, row[3], floats(row[4], rows * cols), rows, cols, pixels, PIXEL)


# Kind: gemm.
@kernel(order="any")
def spread(row):
    """Out (B, I) = doutput (B, O) @ weights (O, I). Row: doutput, weights, ld, out, B, O, I."""
    rows, cols, pixels, ld = row[4], row[5], row[6], row[2]
    doutput, weights, out = floats(row[0], rows * cols), floats(row[1], cols * ld), floats(row[3], rows * pixels)
    for r in range(rows):
        own = out[r * pixels : (r + 1) * pixels]
        for i in range(pixels):
            own[i] = doutput[r * cols] * weights[i]
        for c in range(1, cols):
            d, w = doutput[r * cols + c], weights[c * ld :]
            for i in range(pixels):
                own[i] += d * w[i]


@part
def add_eight_to_two(x, size, d, cols, v, w):
    """Add eight images' share to the gradients of two classes."""
    x0, x1, x2, x3 = x, x[size:], x[2 * size :], x[3 * size :]
    x4, x5, x6, x7 = x[4 * size :], x[5 * size :], x[6 * size :], x[7 * size :]
    a0, a1, a2, a3 = d[0], d[cols], d[2 * cols], d[3 * cols]
    a4, a5, a6, a7 = d[4 * cols], d[5 * cols], d[6 * cols], d[7 * cols]
    b0, b1, b2, b3 = d[1], d[cols + 1], d[2 * cols + 1], d[3 * cols + 1]
    b4, b5, b6, b7 = d[4 * cols + 1], d[5 * cols + 1], d[6 * cols + 1], d[7 * cols + 1]
    for i in range(size):
        p0, p1, p2, p3, p4, p5, p6, p7 = x0[i], x1[i], x2[i], x3[i], x4[i], x5[i], x6[i], x7[i]
        v[i] += p0 * a0 + p1 * a1 + p2 * a2 + p3 * a3 + p4 * a4 + p5 * a5 + p6 * a6 + p7 * a7
        w[i] += p0 * b0 + p1 * b1 + p2 * b2 + p3 * b3 + p4 * b4 + p5 * b5 + p6 * b6 + p7 * b7


@part
def add_one_to_one(x, size, d, w):
    """Add one image's share to the gradient of one class."""
    for i in range(size):
        w[i] += x[i] * d


@part
def update(images, ld_images, doutput, weights, ld, scratch, rows, cols, pixels, factor):
    """Weights (cols, pixels) += factor * doutput (rows, cols).T @ images (rows, pixels), eight images at a time.

    The gradient is summed in scratch, so that a weight is rounded once a step.
    """
    x, gradient = scratch[: IMAGES * pixels], scratch[IMAGES * pixels :]
    for at in range(cols * pixels):
        gradient[at] = 0
    for first in range(0, rows, IMAGES):
        count = min(IMAGES, rows - first)
        for r in range(count):
            own, image = x[r * pixels : (r + 1) * pixels], images[(first + r) * ld_images :]
            for i in range(pixels):
                own[i] = np.float32(image[i])
        pairs = cols // 2 * 2 if count == IMAGES else 0
        for c in range(0, pairs, 2):
            d = doutput[first * cols + c :]
            add_eight_to_two(x, pixels, d, cols, gradient[c * pixels :], gradient[(c + 1) * pixels :])
        for c in range(pairs, cols):
            for r in range(count):
                add_one_to_one(x[r * pixels :], pixels, doutput[(first + r) * cols + c], gradient[c * pixels :])
    for c in range(cols):
        w, g = weights[c * ld :], gradient[c * pixels :]
        for i in range(pixels):
            w[i] += factor * g[i]


# Kind: gemm.
@kernel(order="any")
def add_outer(row):
    """Weights (O, I) += alpha * doutput (B, O).T @ inputs (B, I).

    Row: inputs, ld, doutput, weights, ld, scratch (8 + O, I), B, O, I, alpha.
    """
    rows, cols, pixels, alpha = row[6], row[7], row[8], number(row[9])
    doutput, weights = floats(row[2], rows * cols), floats(row[3], cols * row[4])
    inputs, scratch = floats(row[0], rows * row[1]), floats(row[5], (IMAGES + cols) * pixels)
    update(inputs, row[1], doutput, weights, row[4], scratch, rows, cols, pixels, alpha)


# Kind: gemm.
@kernel(order="any")
def add_outer_u8(row):
    """The same with inputs as bytes of 256ths."""
    rows, cols, pixels, alpha = row[6], row[7], row[8], number(row[9])
    doutput, weights = floats(row[2], rows * cols), floats(row[3], cols * row[4])
    inputs, scratch = octets(row[0], rows * row[1]), floats(row[5], (IMAGES + cols) * pixels)
    update(inputs, row[1], doutput, weights, row[4], scratch, rows, cols, pixels, alpha * PIXEL)
