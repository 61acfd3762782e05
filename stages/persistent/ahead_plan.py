"""The sizes of a network with one hidden layer whose first layer works a step ahead (cluster_ahead.cu), and its limits.

A cluster of 4, 8 or 16 blocks is the head: each has 1, 2 or 4 tiles of sixteen units, and owns eight images. Four more
clusters have the first layer: four blocks share the features of a block's units. Padding is zeros, which stay zeros.
"""

from __future__ import annotations

from dataclasses import dataclass

from common.problem import Problem
from stages.engine.workspace import MOST_ELEMENTS

CLUSTERS, SHARES = 5, 4  # clusters of the launch; blocks that share the features of a block's units: ahead.cuh
THREADS = 16 * 32
SIZES = (4, 8, 16)  # of a cluster
TURNS = (1, 2, 4)  # tiles of units a block
EDGE, CHUNK, MATRICES_BYTES = 16, 8, 512
MOST_CLASSES = 16
MOST_SHARED_BYTES = 227 * 1024  # of a block, on the GPUs that have most
SLOTS = 4  # of a mailbox through L2, by the step
ROUNDS = 2 * SLOTS  # steps after which slot and tag repeat
EXACT, ROUNDED = 2, 1  # float16 summands of a number: for float32's class, and for float16's


@dataclass(frozen=True)
class AheadPlan:
    """Sizes of one problem; `halves` are the float16 summands of a number, `least_turns` a block's tiles or fewer."""

    problem: Problem
    halves: int = EXACT
    least_turns: int = TURNS[0]

    @property
    def turns(self) -> int:
        """Tiles of units that a block takes in turn, as few as have room for the layer in the largest cluster."""
        tiles = max(self.least_turns, -(-self.problem.hidden[0] // (EDGE * SIZES[-1])))
        return next((turns for turns in TURNS if turns >= tiles), TURNS[-1])

    @property
    def blocks(self) -> int:
        """Blocks of a cluster, as few as have room for the batch's images and the layer's units; 0 if none have."""
        needs = max(-(-self.problem.batch_size // CHUNK), -(-self.problem.hidden[0] // (EDGE * self.turns)))
        return next((size for size in SIZES if needs <= size), 0)

    @property
    def pairs(self) -> int:
        """Pairs of eight images in a padded batch."""
        return self.blocks // 2

    @property
    def slice_tiles(self) -> int:
        """Tiles of sixteen features, the bias among them, in a block of the first layer."""
        return -(-(self.problem.inputs + 1) // (EDGE * SHARES))

    @property
    def mailbox_words(self) -> tuple[int, int]:
        """32-bit words of the mailboxes, for products and for doutputs."""
        units = SLOTS * self.blocks * self.turns * self.pairs * 32 * 4
        return (2 if self.turns == 1 else 2 * SHARES) * units, self.halves * units  # sums, and parts of three others

    @property
    def shared_bytes(self) -> int:
        """Dynamic shared memory of a block, in bytes; cluster_ahead.cu asserts that it is enough."""
        pairs, tiles, halves, classes = self.pairs, self.slice_tiles, self.halves, self.problem.classes
        turns, rest = self.turns, max(0, classes - 8 + classes % 2)
        first = (3 * tiles + max(min(turns, 2) * halves, turns)) * pairs + turns * tiles * halves
        first += 3 * SHARES * -(-pairs // SHARES) * 2 if turns == 1 else 0
        head = -(-4 // (halves * turns)) * 2 * halves * (EDGE * pairs) ** 2  # grams
        head += turns * 2 * (halves * (pairs + 1) + pairs) * MATRICES_BYTES
        head += 2 * self.blocks * (8 * (8 + rest) + 2) * 2 * halves + (2 * self.blocks + 1) * halves * classes * 16
        head += self.blocks * pairs * 16
        return -(-max(first * MATRICES_BYTES, head) // 512) * 512 + 512

    @property
    def macros(self) -> tuple[tuple[str, str], ...]:
        """Those of ahead.cuh."""
        numbers = {"CLUSTER_BLOCKS": self.blocks, "CLASS_COUNT": self.problem.classes, "UNIT_TURNS": self.turns}
        numbers |= {"SLICE_TILES": self.slice_tiles, "FACTOR_HALVES": self.halves, "SHARED_BYTES": self.shared_bytes}
        return tuple((name, str(number)) for name, number in numbers.items())


def misfit(problem: Problem, steps: int, halves: int) -> str:
    """Why a problem fits no GPU's clusters, as a sentence; empty if it fits some."""
    if len(problem.hidden) != 1:
        return f"Needs one hidden layer; the network has {len(problem.hidden)}."
    plan, most = AheadPlan(problem, halves), SIZES[-1]
    if problem.hidden[0] > EDGE * TURNS[-1] * most:
        return f"{problem.hidden[0]} units exceed the limit of {EDGE * TURNS[-1] * most}."
    if problem.batch_size > CHUNK * most:
        return f"Batch size {problem.batch_size} exceeds the limit of {CHUNK * most}."
    if problem.classes > MOST_CLASSES:
        return f"{problem.classes} classes exceed the limit of {MOST_CLASSES}."
    if plan.shared_bytes > MOST_SHARED_BYTES:
        return f"{problem.inputs} inputs do not fit the shared memory of {SHARES} blocks."
    largest = steps * EDGE * plan.pairs * max(EDGE * SHARES * plan.slice_tiles, plan.halves * EDGE * plan.pairs)
    return f"{steps:,} steps exceed the limit of {MOST_ELEMENTS:,} numbers." if largest > MOST_ELEMENTS else ""
