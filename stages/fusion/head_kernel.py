"""The launch of softmax_xent, for the rung and for its twins in other languages."""

from __future__ import annotations

from stages.engine.parts import blocks, int32
from stages.engine.workspace import Array, Setup

WARP = 32
THREADS = 256
MOST_THREADS = 1024  # of the block that adds up totals


def lanes(classes: int) -> int:
    """The lanes that share a row: each has two classes, of many classes more."""
    return min(1 << max(classes - 1, 1).bit_length() - 1, WARP)


class HeadKernel:
    """softmax_xent for logits (rows, classes)."""

    def __init__(self, setup: Setup, rows: int, classes: int) -> None:
        threads = blocks(rows * lanes(classes), WARP) * WARP
        self._launches = {False: (blocks(threads, THREADS), THREADS), True: (1, min(threads, MOST_THREADS))}
        self._sizes = int32(rows), int32(classes)
        macros = (("CLASSES", str(classes)), ("LANES", str(lanes(classes))))
        self._kernel = setup.kernel("plain/softmax_xent.cu", "softmax_xent", macros=macros)

    def __call__(self, logits: Array, labels: Array, dlogits: Array, totals: Array, with_totals: bool) -> None:
        """Enqueue it; adds to the totals (2,) when asked."""
        launch = self._launches[with_totals]
        self._kernel(*launch, logits, labels, dlogits, totals, *self._sizes, int32(with_totals))
