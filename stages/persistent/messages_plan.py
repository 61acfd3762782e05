"""The division of a network with hidden layers among blocks that exchange messages, and its limits.

For grid_messages.cu. Blocks form a table of thin by thick shares: units of the last hidden layer are divided into thin
shares, those of the layer below into thick ones, and so in turn.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from common.errors import MisfitError
from common.problem import Problem
from stages.engine.workspace import MOST_ELEMENTS

THREADS, WARP = 256, 32
EDGE = 8  # of a matrix of 16-bit numbers, without gaps
MATRIX_BYTES = 2 * EDGE * EDGE
TILE_EDGES = 8  # thin units that a product takes, in matrices
MOST_THIN = 64  # units of a thin share
MOST_BATCH = 128
MOST_CLASSES = 16
THIN_SHARES = 16
MOST_THICK_SHARES = 8
MOST_SHARED_BYTES = 227 * 1024  # of a block, on the GPUs that have most
SLOTS = 2  # of a mailbox
TOTALS_BYTES = 512  # of a block
GRADIENT_SCALE = 64  # message_plan.cuh
EXACT, ROUNDED = 2, 1  # float16 summands of a number: for float32's class, and for float16's
MOST_REGISTERS = 132  # of a thread, for its weights


@dataclass(frozen=True)
class MessagesPlan:
    """The division of one problem; `halves` are the float16 summands of a number."""

    problem: Problem
    halves: int = EXACT
    thin_shares: int = THIN_SHARES
    thick_shares: int = 7

    @property
    def blocks(self) -> int:
        """Blocks of the launch."""
        return self.thin_shares * self.thick_shares

    @property
    def rows(self) -> int:
        """The padded batch."""
        return 64 if self.problem.batch_size <= MOST_BATCH // 2 else MOST_BATCH

    @property
    def row_tiles(self) -> int:
        """Tiles of sixteen rows that messages carry: a power of two."""
        return next(tiles for tiles in (1, 2, 4, 8) if 16 * tiles >= self.problem.batch_size)

    def is_thin(self, activations: int) -> bool:
        """Whether these activations have thin shares; activations 0 are the images."""
        return (len(self.problem.hidden) - activations) % 2 == 0

    def share(self, activations: int) -> int:
        """Units of a share."""
        widths = (self.problem.inputs, *self.problem.hidden)
        return -(-widths[activations] // (self.thin_shares if self.is_thin(activations) else self.thick_shares))

    def edges(self, activations: int) -> int:
        """Matrices of a share; the last layer's outputs fill two."""
        if activations > len(self.problem.hidden):
            return 2
        share = self.share(activations)
        return -(-share // EDGE) if self.is_thin(activations) else -(-share // (2 * EDGE)) * 2

    def stored_edges(self, activations: int) -> int:
        """The same in memory, an even number."""
        return -(-self.edges(activations) // 2) * 2

    @property
    def images_shape(self) -> tuple[int, int, int, int, int]:
        """(shares, matrices along the inputs, and along the images, images, inputs) of a step."""
        shares = self.thin_shares if self.is_thin(0) else self.thick_shares
        return shares, self.stored_edges(0), self.rows // EDGE, EDGE, EDGE

    def sharers(self, activations: int) -> int:
        """Blocks with the same units, which add up their parts."""
        return self.thick_shares if self.is_thin(activations) else self.thin_shares

    def own_tiles(self, activations: int) -> int:
        """Tiles of sixteen images by eight units that each of the first of these blocks adds up: a power of two."""
        tiles = self.edges(activations) * self.row_tiles
        return 1 << (-(-tiles // self.sharers(activations)) - 1).bit_length()

    @property
    def is_shared(self) -> bool:
        """Whether there are blocks for each column of units."""
        hidden = range(1, len(self.problem.hidden) + 1)
        return all(self.edges(each) <= self.sharers(each) for each in hidden)

    @property
    def registers(self) -> int:
        """Registers of a thread that hold weights."""
        thick = [self.edges(layer + 1 if self.is_thin(layer) else layer) for layer in range(len(self.problem.layers))]
        return sum(4 * -(-edges // 2) for edges in thick)

    @property
    def shared_bytes(self) -> int:
        """Dynamic shared memory of a block, in bytes; message_plan.cuh asserts that it is enough."""
        depth, images = len(self.problem.hidden), self.rows // EDGE
        matrices = self.halves * sum(self.edges(layer) * self.edges(layer + 1) for layer in range(depth + 1))
        matrices += images * 2 * (self.halves + self.stored_edges(0))
        matrices += images * self.halves * sum(self.stored_edges(each) for each in range(1, depth + 1))
        floats = EDGE * sum(self.edges(each) for each in range(1, depth + 2))
        # A product takes sixty-four thin units, of which the last may lie behind the share's memory.
        behind = images * (TILE_EDGES - self.stored_edges(depth)) * MATRIX_BYTES
        return matrices * MATRIX_BYTES + max(-(-4 * floats // 16) * 16 + TOTALS_BYTES, behind)

    @property
    def part_bytes(self) -> int:
        """Bytes of four numbers in a message."""
        return 8 * self.halves

    @property
    def terms(self) -> dict[str, float]:
        """What a step grows with: what a block receives for sums of hidden layers, parts to add up and whole ones."""
        hidden = range(1, len(self.problem.hidden) + 1)
        tiles = sum(self.own_tiles(each) * self.sharers(each) + self.edges(each) * self.row_tiles for each in hidden)
        return {"thousand bytes of sums": 2 * WARP * tiles * self.part_bytes / 1e3}

    @property
    def mail_units(self) -> int:
        """Units of sixteen bytes of all mailboxes."""
        logits = self.row_tiles * EDGE * EDGE * (self.thin_shares + 1)
        tiles = 0
        for each in range(1, len(self.problem.hidden) + 1):
            blocks = self.sharers(each)
            tiles += self.blocks // blocks * (blocks**2 * self.own_tiles(each) + self.edges(each) * self.row_tiles)
        return self.blocks + SLOTS * (logits + tiles * WARP) * self.part_bytes // 16

    def macros(self, weights: list[int], biases: list[int]) -> tuple[tuple[str, str], ...]:
        """Those of message_plan.cuh; `weights` and `biases` are the begins of the layers' parameters."""
        problem = self.problem
        numbers = {"THIN_SHARES": self.thin_shares, "THICK_SHARES": self.thick_shares, "BATCH_SIZE": problem.batch_size}
        numbers |= {"HIDDEN_LAYERS": len(problem.hidden), "INPUT_COUNT": problem.inputs, "CLASS_COUNT": problem.classes}
        numbers |= {"FACTOR_HALVES": self.halves, "SHARED_BYTES": self.shared_bytes}
        lists = {"HIDDEN_UNITS": problem.hidden, "WEIGHT_BEGINS": weights, "BIAS_BEGINS": biases}
        listed = tuple((name, ",".join(map(str, each))) for name, each in lists.items())
        return (*((name, str(number)) for name, number in numbers.items()), *listed)


def plan_for(problem: Problem, halves: int, multiprocessors: int) -> MessagesPlan:
    """The fewest thick shares with the least work a block; MisfitError if there are too few multiprocessors."""
    most = min(MOST_THICK_SHARES, multiprocessors // THIN_SHARES)
    if most == 0:
        raise MisfitError(f"Needs {THIN_SHARES} multiprocessors; this GPU has {multiprocessors}.")
    plans = [MessagesPlan(problem, halves, thick_shares=shares) for shares in range(1, most + 1)]
    plans = [plan for plan in plans if plan.is_shared] or plans[-1:]
    return min(plans, key=lambda plan: (plan.edges(len(problem.hidden) - 1), plan.thick_shares))


def too_large(steps: int, images_shape: tuple[int, ...]) -> str:
    """Why the images of an epoch have too many numbers for a kernel's indices; empty if they have not."""
    is_large = steps * math.prod(images_shape) > MOST_ELEMENTS
    return f"{steps:,} steps exceed the limit of {MOST_ELEMENTS:,} numbers." if is_large else ""


def misfit(problem: Problem, steps: int, halves: int) -> str:
    """Why a problem fits no GPU, as a sentence; empty if it fits some."""
    if not problem.hidden:
        return "Needs at least one hidden layer."
    depth = len(problem.hidden)
    if problem.batch_size > MOST_BATCH:
        return f"Batch size {problem.batch_size} exceeds the limit of {MOST_BATCH}."
    if problem.classes > MOST_CLASSES:
        return f"{problem.classes} classes exceed the limit of {MOST_CLASSES}."
    plan = plan_for(problem, halves, MOST_THICK_SHARES * THIN_SHARES)
    thin = [each for each in range(depth + 1) if plan.is_thin(each)]
    if (most := max(plan.share(each) for each in thin)) > MOST_THIN:
        return f"{most * THIN_SHARES:,} units or inputs exceed the limit of {MOST_THIN * THIN_SHARES:,}."
    if not plan.is_shared or plan.shared_bytes > MOST_SHARED_BYTES or plan.registers > MOST_REGISTERS:
        layers = ",".join(map(str, problem.hidden))
        return f"Hidden layers {layers} at batch size {problem.batch_size} do not fit {plan.blocks} multiprocessors."
    return too_large(steps, plan.images_shape)
