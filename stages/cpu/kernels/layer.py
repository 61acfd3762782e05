"""Bias, ReLU, their gradients, and SGD: the kernels of `stages/kernels/plain`, one loop nest each."""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from common.cpu.compiled import floats, kernel, number, octets


# Kind: layer.
@kernel()
def add_bias(row):
    """Out (rows, cols) += bias (cols,). Row: out, bias, rows, cols."""
    rows, cols = row[2], row[3]
    out, bias = floats(row[0], rows * cols), floats(row[1], cols)
    for r in range(rows):
        for c in range(cols):
            out[r * cols + c] += bias[c]


# Kind: layer.
@kernel()
def relu(row):
    """Out = max(out, 0). Row: out, size."""
    out = floats(row[0], row[1])
    for at in range(row[1]):
        out[at] = max(out[at], 0)


# Kind: layer.
@kernel()
def relu_backward(row):
    """Doutput = 0 where the output is not positive. Row: doutput, output, size."""
    size = row[2]
    doutput, output = floats(row[0], size), floats(row[1], size)
    for at in range(size):
        doutput[at] = doutput[at] if output[at] > 0 else 0


# Kind: layer.
@kernel()
def bias_gradient(row):
    """Dbias (cols,) = doutput (rows, cols) summed over rows. Row: doutput, dbias, rows, cols."""
    rows, cols = row[2], row[3]
    doutput, dbias = floats(row[0], rows * cols), floats(row[1], cols)
    for c in range(cols):
        dbias[c] = 0
    for r in range(rows):
        for c in range(cols):
            dbias[c] += doutput[r * cols + c]


# Kind: update.
@kernel()
def bias_update(row):
    """Bias (cols,) -= rate * doutput (rows, cols) summed over rows. Row: doutput, bias, rate, rows, cols."""
    rate, rows, cols = number(row[2]), row[3], row[4]
    doutput, bias = floats(row[0], rows * cols), floats(row[1], cols)
    for c in range(cols):
        total = doutput[c]
        for r in range(1, rows):
            total += doutput[r * cols + c]
        bias[c] -= rate * total


# Kind: update.
@kernel()
def sgd_update(row):
    """Parameters -= rate * gradients. Row: parameters, gradients, rate, size."""
    rate, size = number(row[2]), row[3]
    parameters, gradients = floats(row[0], size), floats(row[1], size)
    for at in range(size):
        parameters[at] -= rate * gradients[at]


# Kind: copy.
@kernel()
def expand_pixels(row):
    """Images = pixels / 256, in float32. Row: pixels, images, size."""
    size = row[2]
    pixels, images = octets(row[0], size), floats(row[1], size)
    for at in range(size):
        images[at] = pixels[at] * (1 / 256)


# Kind: layer.
@kernel()
def sum_partials(row):
    """Out (rows, cols) = bias (cols,) + the sum of the threads' partial outputs, in the threads' order.

    Row: partials, threads, numbers from one thread's to the next, out, bias, rows, cols.
    """
    threads, apart, rows, cols = row[1], row[2], row[5], row[6]
    partials, out, bias = floats(row[0], threads * apart), floats(row[3], rows * cols), floats(row[4], cols)
    for r in range(rows):
        for c in range(cols):
            out[r * cols + c] = bias[c]
    for thread in range(threads):
        own = partials[thread * apart :]
        for at in range(rows * cols):
            out[at] += own[at]
