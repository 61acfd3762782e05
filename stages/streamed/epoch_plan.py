"""The division of a network of wide layers among blocks that stream its weights, and its limits.

For streaming_epoch.cu. Blocks form a table of thin by thick shares, as those of grid-messages (messages_plan.py).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from common.problem import Problem
from stages.engine.parts import blocks
from stages.engine.workspace import MOST_ELEMENTS
from stages.streamed.weight_panels import TILE

THREADS = 640
EDGE = 8  # of a matrix of 16-bit numbers, without gaps
TAKERS = 256  # threads that multiply, in two teams
THIN_SHARES, THICK_SHARES = 16, 8
MOST_BATCH = 64
MOST_CLASSES = CLASS_ROWS = 16
IMAGE_STEP = 16  # inputs
SLOT_BYTES = 4 * TILE * TILE
BARRIERS = 4  # of a slot, 8 bytes each
MOST_SLOTS = 16
TEAMS = 2
FEWEST_SLOTS = 2 * TEAMS  # forward, a team keeps a piece until it has the next
MOST_LAYERS = 4
MOST_SHARED_BYTES = 227 * 1024  # of a block
UNIT_BYTES = 16  # of a message
GRADIENT_SCALE = 64  # epoch_plan.cuh


@dataclass(frozen=True)
class EpochPlan:
    """The division of one problem with hidden layers of one size."""

    problem: Problem
    thin_shares: int = THIN_SHARES
    thick_shares: int = THICK_SHARES
    deferred: bool = False  # whether only every second step updates the hidden layers

    @property
    def blocks(self) -> int:
        """Blocks of the launch."""
        return self.thin_shares * self.thick_shares

    @property
    def rows(self) -> int:
        """The padded batch."""
        return 32 if self.problem.batch_size <= 32 else MOST_BATCH

    @property
    def units(self) -> int:
        """Units of a hidden layer."""
        return self.problem.hidden[0]

    def shares(self, activations: int) -> int:
        """Shares of these activations; activations 0 are the images."""
        return self.thick_shares if (len(self.problem.hidden) - activations) % 2 else self.thin_shares

    def tiles(self, activations: int) -> int:
        """Tiles of 64 units of a share; of the images some shares have fewer."""
        return blocks(blocks((self.problem.inputs, *self.problem.hidden)[activations], TILE), self.shares(activations))

    @property
    def images_shape(self) -> tuple[int, int, int, int, int]:
        """(shares, matrices along the inputs, and along the images, inputs, images) of a step."""
        return self.shares(0), self.tiles(0) * TILE // EDGE, self.rows // EDGE, EDGE, EDGE

    @property
    def own_units(self) -> int:
        """Units of a message that each block adds up, of each layer: threads share one, or have one each."""
        return self.units * self.rows // EDGE // self.blocks

    @property
    def _fixed_bytes(self) -> int:
        """Shared memory of a block but for its ring, in bytes; epoch_plan.cuh asserts that it is enough."""
        depth = len(self.problem.hidden)
        tiles = 2 * self.tiles(0) + sum(self.tiles(each) for each in range(1, depth + 1))
        last = 2 * CLASS_ROWS * (self.units // self.thin_shares + self.rows) + 4 * TAKERS * 4
        own = depth * (4 * self.units // self.blocks + self.own_units)
        kept = self.deferred * (TEAMS * 2 * self.rows**2 + self._kept_bytes)
        return 2 * tiles * TILE * self.rows + kept + last + own + 4 * CLASS_ROWS + 8 * 6

    @property
    def _kept_bytes(self) -> int:
        """A larger share of activations, in bytes."""
        return 2 * self.units // min(self.thin_shares, self.thick_shares) * self.rows

    @property
    def slots(self) -> int:
        """Slots of the ring, as many for each team."""
        slots = min(MOST_SLOTS, (MOST_SHARED_BYTES - self._fixed_bytes) // (SLOT_BYTES + 8 * BARRIERS))
        return slots // TEAMS * TEAMS

    @property
    def shared_bytes(self) -> int:
        """Dynamic shared memory of a block, in bytes."""
        return self._fixed_bytes + self.slots * (SLOT_BYTES + 8 * BARRIERS)

    @property
    def mail_units(self) -> int:
        """Units of 16 bytes of all mailboxes, each twice, and of what blocks keep."""
        numbers = self.units * self.rows // EDGE
        parts = numbers * (self.thin_shares + self.thick_shares)
        kept = self.deferred * self.blocks * 2 * len(self.problem.hidden) * self._kept_bytes // UNIT_BYTES
        return 2 * (parts + 2 * numbers + 2 * self.thin_shares * self.rows) + kept

    def macros(self, weights: list[int], biases: list[int]) -> tuple[tuple[str, str], ...]:
        """Those of epoch_plan.cuh; `weights` and `biases` are the begins of the layers' parameters."""
        problem = self.problem
        numbers = {"THIN_SHARES": self.thin_shares, "THICK_SHARES": self.thick_shares, "BATCH_SIZE": problem.batch_size}
        numbers |= {"HIDDEN_LAYERS": len(problem.hidden), "INPUT_COUNT": problem.inputs, "UNIT_COUNT": self.units}
        numbers |= {"CLASS_COUNT": problem.classes, "SLOT_COUNT": self.slots, "DEFERRED": int(self.deferred)}
        begins = {"WEIGHT_BEGINS": weights, "BIAS_BEGINS": biases}
        listed = tuple((name, ",".join(map(str, each))) for name, each in begins.items())
        return (*((name, str(number)) for name, number in numbers.items()), *listed)


def misfit(problem: Problem, steps: int, deferred: bool = False) -> str:
    """Why a problem does not fit, as a sentence; empty if it does."""
    hidden, step = problem.hidden, TEAMS * TILE * THIN_SHARES
    if not 2 <= len(hidden) <= MOST_LAYERS or len(set(hidden)) != 1:
        return f"Needs 2 to {MOST_LAYERS} hidden layers, all of one size."
    if hidden[0] % step:
        return f"{hidden[0]:,} hidden units are not a multiple of {step:,}."
    if problem.batch_size > MOST_BATCH:
        return f"Batch size {problem.batch_size:,} exceeds the limit of {MOST_BATCH}."
    if problem.classes > MOST_CLASSES:
        return f"{problem.classes} classes exceed the limit of {MOST_CLASSES}."
    if problem.inputs % IMAGE_STEP:
        return f"{problem.inputs:,} inputs are not a multiple of {IMAGE_STEP}."
    plan = EpochPlan(problem, deferred=deferred)
    if hidden[0] > (most := TAKERS * plan.blocks * EDGE // plan.rows):
        return f"{hidden[0]:,} hidden units exceed the limit of {most:,}."
    if plan.slots < FEWEST_SLOTS:
        least = plan.shared_bytes + (FEWEST_SLOTS - plan.slots) * (SLOT_BYTES + 8 * BARRIERS)
        return f"Needs {least:,} bytes of shared memory a block; there are {MOST_SHARED_BYTES:,}."
    largest = steps * math.prod(plan.images_shape)
    return f"{steps:,} steps exceed the limit of {MOST_ELEMENTS:,} numbers." if largest > MOST_ELEMENTS else ""
