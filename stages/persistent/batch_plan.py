"""The division of softmax regression among blocks that share out the batch, and its limits (divided_batch.cu)."""

from __future__ import annotations

from dataclasses import dataclass

from common.errors import MisfitError
from common.problem import Problem
from stages.persistent.messages_plan import EXACT, MOST_SHARED_BYTES, SLOTS, too_large

THREADS, WARPS = 512, 16
EDGE, CHUNK = 16, 8  # images or features: of a fragment, of a matrix in it
TILE_BYTES = EDGE * EDGE * 2  # of pixels
BARRIER_BYTES = 16
MOST_BLOCKS = 128  # with images: a lane of an owner adds up eight parts
ENOUGH_BLOCKS = 64  # more would wait longer for each other, where the batch does not need them
MOST_TILES = 4  # of sixteen images of a block
MOST_REGISTERS = 96  # of a thread, for weights and logits


@dataclass(frozen=True)
class BatchPlan:
    """The division of one problem; `halves` are the float16 summands of a number."""

    problem: Problem
    halves: int = EXACT
    image_tiles: int = 1  # of sixteen images of a block
    own_units: int = 16  # of an owner, an even number

    @property
    def image_blocks(self) -> int:
        """Blocks that share out the batch."""
        return -(-self.problem.batch_size // (EDGE * self.image_tiles))

    @property
    def tiles(self) -> int:
        """Tiles of sixteen features, with the bias's one."""
        return self.problem.inputs // EDGE + 1

    @property
    def units(self) -> int:
        """Units of four weights."""
        return self.tiles * self.problem.classes * 4

    @property
    def owners(self) -> int:
        """Blocks that have units."""
        return -(-self.units // self.own_units)

    @property
    def blocks(self) -> int:
        """Blocks of the launch."""
        return max(self.image_blocks, self.owners)

    @property
    def edges(self) -> int:
        """Matrices of eight classes."""
        return -(-self.problem.classes // CHUNK)

    @property
    def terms(self) -> dict[str, float]:
        """What a step grows with: blocks whose parts are added up, and fragments of weights that a warp receives."""
        return {"block with images": float(self.image_blocks), "fragment": float(self.edges * -(-self.tiles // WARPS))}

    @property
    def registers(self) -> int:
        """Registers of a thread that hold weights and logits."""
        return self.halves * self.edges * (2 * -(-self.tiles // WARPS) + 4 * self.image_tiles)

    @property
    def images_shape(self) -> tuple[int, int, int, int, int, int, int]:
        """(blocks, tiles of features, tiles of images, 2, 2, 8, 8) of a step."""
        return self.image_blocks, self.tiles, self.image_tiles, 2, 2, CHUNK, CHUNK

    @property
    def shared_bytes(self) -> int:
        """Dynamic shared memory of a block, in bytes; divided_batch.cu asserts that it is enough."""
        images = 2 * self.tiles * TILE_BYTES
        logits = WARPS * self.edges * EDGE * CHUNK * 4
        dlogits = self.halves * 2 * -(-self.edges // 2) * EDGE * CHUNK * 2
        return self.image_tiles * (images + logits + dlogits) + BARRIER_BYTES

    @property
    def mail_units(self) -> int:
        """Units of sixteen bytes of all mailboxes."""
        parts = self.owners * self.image_blocks * self.own_units
        return self.image_blocks + SLOTS * (parts + self.units * self.halves // 2)

    def macros(self, weights: list[int], biases: list[int]) -> tuple[tuple[str, str], ...]:
        """Those of divided_batch.cu; `weights` and `biases` are the begins of the layer's parameters."""
        problem = self.problem
        numbers = {"IMAGE_BLOCKS": self.image_blocks, "IMAGE_TILES": self.image_tiles, "OWN_UNITS": self.own_units}
        numbers |= {"BATCH_SIZE": problem.batch_size, "INPUT_COUNT": problem.inputs, "CLASS_COUNT": problem.classes}
        numbers |= {"FACTOR_HALVES": self.halves, "WEIGHTS_BEGIN": weights[0], "BIASES_BEGIN": biases[0]}
        return tuple((name, str(number)) for name, number in (numbers | {"SHARED_BYTES": self.shared_bytes}).items())


def plan_for(problem: Problem, halves: int, multiprocessors: int) -> BatchPlan:
    """Few images a block, and few units an owner; MisfitError if there is no room for either."""
    own = -(-BatchPlan(problem, halves).units // min(ENOUGH_BLOCKS, multiprocessors))
    plans = [BatchPlan(problem, halves, tiles, own + own % 2) for tiles in range(1, MOST_TILES + 1)]
    plans = [plan for plan in plans if plan.registers <= MOST_REGISTERS and plan.shared_bytes <= MOST_SHARED_BYTES]
    if not plans:
        raise MisfitError(f"{problem.inputs:,} inputs and {problem.classes} classes do not fit a multiprocessor.")
    most = min(MOST_BLOCKS, multiprocessors)
    fitting = [plan for enough in (ENOUGH_BLOCKS, most) for plan in plans if plan.image_blocks <= min(enough, most)]
    if not fitting:
        reason = f"exceeds the limit of {most * EDGE * plans[-1].image_tiles:,}"
        raise MisfitError(f"Batch size {problem.batch_size:,} {reason}.")
    return fitting[0]


def misfit(problem: Problem, steps: int, halves: int) -> str:
    """Why a problem fits no GPU, as a sentence; empty if it fits some."""
    if problem.hidden:
        return "Needs a network without hidden layers."
    try:
        plan = plan_for(problem, halves, MOST_BLOCKS)
    except MisfitError as error:
        return str(error)
    return too_large(steps, plan.images_shape)
