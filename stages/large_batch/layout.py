"""Sizes and places of a large batch's tensors: float16 halves, padded to the tiles of the kernels."""

from __future__ import annotations

from dataclasses import dataclass

from common.problem import Problem

# halves.cuh
EDGE, WARP = 16, 32
WEIGHT_SCALE, OUTPUT_SCALE = 64.0, 16.0
EXACT, ROUNDED = 2, 1  # float16 summands of a number
# hidden_head.cu
HEAD_THREADS, CLASSES, GROUP = 256, 16, 32
MOST_UNITS = 512
# update_all.cu
UPDATE_THREADS = 256

MOST_SPLITS = 4  # of a batch whose parts of the weight gradient are added up by update_all


def up(number: int, multiple: int) -> int:
    """The number, rounded up to a multiple."""
    return -(-number // multiple) * multiple


@dataclass(frozen=True)
class Layout:
    """One hidden layer; B batch, I inputs, U hidden units, C classes."""

    problem: Problem
    halves: int = EXACT
    multiprocessors: int = 1

    @property
    def features(self) -> int:
        """I, padded."""
        return up(self.problem.inputs, EDGE)

    @property
    def units(self) -> int:
        """U."""
        return self.problem.hidden[0]

    @property
    def width(self) -> int:
        """U, padded."""
        return up(self.units, GROUP)

    @property
    def wide(self) -> int:
        """All halves of U numbers, padded."""
        return self.halves * self.width

    @property
    def head_blocks(self) -> int:
        """Blocks of hidden_head, at most one a multiprocessor, with the fewest tiles each; each has a share."""
        tiles = -(-self.problem.batch_size // EDGE)
        return -(-tiles // -(-tiles // self.multiprocessors))

    @property
    def share(self) -> int:
        """Numbers of a share: the gradients of the last layer's parameters and of the hidden biases."""
        return (self.units + 1) * self.problem.classes + self.units

    @property
    def update_blocks(self) -> int:
        """Blocks of update_all."""
        return -(-self.share // WARP) - (-self.problem.inputs * self.units // UPDATE_THREADS)

    @property
    def splits(self) -> list[int]:
        """Numbers of equal parts of a batch, each with a weight gradient of its own."""
        splits, batch = [1], self.problem.batch_size
        while 2 * splits[-1] <= MOST_SPLITS and batch % (2 * splits[-1] * EDGE) == 0:
            splits.append(2 * splits[-1])
        return splits

    @property
    def gradient_scale(self) -> float:
        """A power of two that moves gradients, means over a batch, away from float16's smallest numbers."""
        return 256.0 * 2.0 ** (self.problem.batch_size - 1).bit_length()

    @property
    def macros(self) -> tuple[tuple[str, str], ...]:
        """Macros of all kernels."""
        return (("FACTOR_HALVES", str(self.halves)),)

    @property
    def head_macros(self) -> tuple[tuple[str, str], ...]:
        """Macros of hidden_head."""
        return (*self.macros, ("UNITS", str(self.width)))

    @property
    def head_bytes(self) -> int:
        """Shared memory of a block of hidden_head."""
        class_stride, stride = CLASSES + 8, self.width + 8
        shares = min(self.width // GROUP, HEAD_THREADS // WARP)
        return EDGE * (8 + 4 + shares * class_stride * 4 + self.halves * 2 * (stride + class_stride))
