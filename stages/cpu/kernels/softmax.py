"""Softmax, its gradient and the totals: three loop nests, or one that vectors compute."""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import math

import numpy as np

from common.cpu.compiled import doubles, float_of_bits, floats, integers, kernel, part

# exp(x) = 2^n * e^r with n the nearest whole number to x / ln 2; ln 2 in two parts keeps r exact (Cody and Waite).
PER_LN2 = np.float32(1.44269504)
LN2_HIGH, LN2_LOW = np.float32(0.693359375), np.float32(-2.12194440e-4)
LEAST_EXPONENT = np.float32(-87.0)  # below it e^x is smaller than the smallest normal float32


# Kind: softmax.
@kernel()
def softmax(row):
    """Logits (rows, classes) to probabilities. Row: logits, probabilities, rows, classes."""
    rows, classes = row[2], row[3]
    logits, probs = floats(row[0], rows * classes), floats(row[1], rows * classes)
    for r in range(rows):
        first = r * classes
        best = logits[first]
        for c in range(1, classes):
            best = max(best, logits[first + c])
        total = np.float32(0)
        for c in range(classes):
            probs[first + c] = math.exp(logits[first + c] - best)
            total += probs[first + c]
        for c in range(classes):
            probs[first + c] /= total


# Kind: softmax.
@kernel()
def softmax_xent_backward(row):
    """Dlogits = (probabilities - one at the label) / rows. Row: probabilities, labels, dlogits, rows, classes."""
    rows, classes = row[3], row[4]
    probs, labels, dlogits = floats(row[0], rows * classes), integers(row[1], rows), floats(row[2], rows * classes)
    for r in range(rows):
        for c in range(classes):
            one = np.float32(1) if c == labels[r] else np.float32(0)
            dlogits[r * classes + c] = (probs[r * classes + c] - one) / np.float32(rows)


@part
def add_row(logits, label, totals):
    """Add one image's loss, and one if its largest logit is the label's (the first of equal ones counts)."""
    best, place = logits[0], 0
    for c in range(1, len(logits)):
        if logits[c] > best or (logits[c] != logits[c] and best == best):
            best, place = logits[c], c
    total = np.float64(0)
    for c in range(len(logits)):
        total += math.exp(np.float64(logits[c] - best))
    totals[0] += math.log(total) + np.float64(best - logits[label])
    totals[1] += 1 if place == label else 0


# Kind: softmax.
@kernel()
def softmax_xent_totals(row):
    """Add the batch's loss and number correct to the totals. Row: logits, labels, totals, rows, classes."""
    rows, classes = row[3], row[4]
    logits, labels, totals = floats(row[0], rows * classes), integers(row[1], rows), doubles(row[2], 2)
    for r in range(rows):
        add_row(logits[r * classes : (r + 1) * classes], labels[r], totals)


@part
def exponential(x):
    """e^x for x <= 0 in float32, to some 1e-7, of operations that vectors have; NaN stays NaN."""
    x = max(LEAST_EXPONENT, x) if x == x else x
    whole = np.float32(np.floor(x * PER_LN2 + np.float32(0.5)))
    r = (x - whole * LN2_HIGH) - whole * LN2_LOW
    p = np.float32(1.9875691500e-4)
    p = p * r + np.float32(1.3981999507e-3)
    p = p * r + np.float32(8.3334519073e-3)
    p = p * r + np.float32(4.1665795894e-2)
    p = p * r + np.float32(1.6666665459e-1)
    p = p * r + np.float32(5.0000001201e-1)
    p = p * r * r + r + np.float32(1)
    return p * float_of_bits((np.int32(whole) + np.int32(127)) << np.int32(23))


@part
def head(logits, labels, dlogits, totals, rows, classes, with_totals, share):
    """Logits to dlogits, which count `share` each. The exponentials of all rows are one loop, which vectors compute."""
    for r in range(rows):
        first = r * classes
        best = logits[first]
        for c in range(1, classes):
            best = max(best, logits[first + c])
        for c in range(classes):
            dlogits[first + c] = logits[first + c] - best
    for at in range(rows * classes):
        dlogits[at] = exponential(dlogits[at])
    for r in range(rows):
        first = r * classes
        total = np.float32(0)
        for c in range(classes):
            total += dlogits[first + c]
        factor = share / total
        for c in range(classes):
            dlogits[first + c] *= factor
        dlogits[first + labels[r]] -= share
    if with_totals:
        for r in range(rows):
            add_row(logits[r * classes : (r + 1) * classes], labels[r], totals)


# Kind: softmax.
@kernel(order="any")
def softmax_xent(row):
    """Logits to dlogits in one call. Row: logits, labels, dlogits, totals, rows, classes, whether to add totals."""
    rows, classes = row[4], row[5]
    logits, labels, dlogits = floats(row[0], rows * classes), integers(row[1], rows), floats(row[2], rows * classes)
    head(logits, labels, dlogits, doubles(row[3], 2), rows, classes, row[6], np.float32(1) / np.float32(rows))


# Kind: softmax.
@kernel(order="any")
def softmax_xent_share(row):
    """The same for some images of a batch. Row: as before, then the size of the batch."""
    rows, classes = row[4], row[5]
    logits, labels, dlogits = floats(row[0], rows * classes), integers(row[1], rows), floats(row[2], rows * classes)
    head(logits, labels, dlogits, doubles(row[3], 2), rows, classes, row[6], np.float32(1) / np.float32(row[7]))
