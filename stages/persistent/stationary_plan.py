"""The division of a network of wide layers among blocks that keep its weights, and its limits.

For stationary_epoch.cu, whose blocks form the table of thin by thick shares of grid-messages.
"""

from __future__ import annotations

from dataclasses import dataclass

from common.problem import Problem
from stages.persistent.messages_plan import (
    EDGE,
    MATRIX_BYTES,
    MOST_CLASSES,
    MOST_SHARED_BYTES,
    MOST_THICK_SHARES,
    ROUNDED,
    MessagesPlan,
    too_large,
)

TAKERS, UPDATERS = 256, 256  # threads of a block
THREADS = TAKERS + UPDATERS
CLASS_ROWS = 16
TILE = 64  # units that a product has in its rows
MOST_BATCH = ROWS = 32
OWN_OUTPUTS = 16  # units of a layer that a block adds up
UPDATER_ROWS, UPDATER_COLS = 4, 2  # warps that divide thick and thin units
MOST_PIECES = 73  # of an updating warp in its registers: two of a thread's


@dataclass(frozen=True)
class StationaryPlan(MessagesPlan):
    """The division of one problem with hidden layers of one size."""

    halves: int = ROUNDED
    thick_shares: int = MOST_THICK_SHARES
    most_pieces: int = MOST_PIECES

    @property
    def rows(self) -> int:
        """The padded batch."""
        return ROWS

    def edges(self, activations: int) -> int:
        """Matrices of a share, in pairs."""
        return -(-self.share(activations) // (2 * EDGE)) * 2

    @property
    def images_shape(self) -> tuple[int, int, int, int, int]:
        """(shares, matrices along the inputs, and along the images, inputs, images) of a step."""
        return self.shares(0), self.edges(0), ROWS // EDGE, EDGE, EDGE

    def shares(self, activations: int) -> int:
        """Shares of these activations; activations 0 are the images."""
        return self.thin_shares if self.is_thin(activations) else self.thick_shares

    def own_pieces(self, layer: int) -> int:
        """Pieces of sixteen thick units by eight thin ones of a layer's weights that a warp updates."""
        thin, thick = (layer, layer + 1) if self.is_thin(layer) else (layer + 1, layer)
        return -(-self.edges(thick) // 2 // UPDATER_ROWS) * (self.edges(thin) // UPDATER_COLS)

    @property
    def shared_pieces(self) -> int:
        """Those whose lower halves registers have no room for, if the first layer has as many."""
        return max(0, sum(map(self.own_pieces, range(len(self.problem.hidden)))) - self.most_pieces)

    @property
    def shared_bytes(self) -> int:
        """Dynamic shared memory of a block, in bytes; stationary_plan.cuh asserts that it is enough."""
        depth, last_units = len(self.problem.hidden), -(-self.share(len(self.problem.hidden)) // (2 * TILE)) * 2 * TILE
        matrices = sum(self.edges(layer) * self.edges(layer + 1) for layer in range(depth))
        matrices += ROWS // EDGE * (2 * self.edges(0) + sum(self.edges(each) for each in range(1, depth)))
        last = 2 * (last_units + CLASS_ROWS) * ROWS + 2 * last_units * CLASS_ROWS + 4 * TAKERS * 4 + 4 * CLASS_ROWS
        own = depth * OWN_OUTPUTS * (4 + ROWS // EDGE)
        lower = 2 * self.shared_pieces * UPDATERS * 4
        return matrices * MATRIX_BYTES + last + own + lower + 4 * 8

    @property
    def mail_units(self) -> int:
        """Units of sixteen bytes of all mailboxes."""
        thin, thick = (EDGE * self.edges(len(self.problem.hidden) - i) * ROWS // EDGE for i in (0, 1))
        sums = self.blocks * (thin + thick) + self.thin_shares * thin + self.thick_shares * thick
        return 2 * (sums + 2 * self.thin_shares * ROWS)

    def macros(self, weights: list[int], biases: list[int]) -> tuple[tuple[str, str], ...]:
        """Those of stationary_plan.cuh; `weights` and `biases` are the begins of the layers' parameters."""
        inherited = dict(super().macros(weights, biases))
        del inherited["FACTOR_HALVES"], inherited["HIDDEN_UNITS"]
        inherited |= {"UNIT_COUNT": str(self.problem.hidden[0]), "SHARED_PIECES": str(self.shared_pieces)}
        return tuple(inherited.items())


def misfit(problem: Problem, steps: int) -> str:
    """Why a problem does not fit, as a sentence; empty if it does."""
    hidden = problem.hidden
    if len(hidden) < 2 or len(set(hidden)) != 1:
        return "Needs at least 2 hidden layers, all of one size."
    if problem.batch_size > MOST_BATCH:
        return f"Batch size {problem.batch_size:,} exceeds the limit of {MOST_BATCH}."
    if problem.classes > MOST_CLASSES:
        return f"{problem.classes} classes exceed the limit of {MOST_CLASSES}."
    plan = StationaryPlan(problem)
    if hidden[0] > (most := OWN_OUTPUTS * plan.blocks):
        return f"{hidden[0]:,} hidden units exceed the limit of {most:,}."
    if plan.shared_pieces >= plan.own_pieces(0) or plan.shared_bytes > MOST_SHARED_BYTES:
        return f"Hidden layers {','.join(map(str, hidden))} do not fit {plan.blocks} multiprocessors."
    return too_large(steps, plan.images_shape)
