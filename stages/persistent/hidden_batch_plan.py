"""The division of one hidden layer among blocks that share out the batch, and its limits (divided_hidden.cu)."""

from __future__ import annotations

from dataclasses import dataclass

from common.errors import MisfitError
from common.problem import Problem
from stages.persistent.messages_plan import MOST_SHARED_BYTES, SLOTS, too_large

THREADS, WARP, GROUPS = 512, 32, 4  # GROUPS: of warps
EDGE, CHUNK = 16, 8  # images, units or features: of a tile, of a matrix in it
MATRIX_BYTES = CHUNK * CHUNK * 2
IMAGES = 64  # of a block
MOST_CLASSES, MOST_UNITS = 64, 1024
MOST_TILES = 128  # of units by classes: a warp holds a quarter of their weights in registers
MOST_PARTS = 16  # fragments that a thread adds up at once
MOST_BLOCKS = 132
BIASES = 4  # fragments of sixteen classes'


@dataclass(frozen=True)
class HiddenBatchPlan:
    """The division of one problem; a block has so many tiles of sixteen units."""

    problem: Problem
    unit_tiles: int = 1

    @property
    def image_shares(self) -> int:
        """Shares of the batch."""
        return -(-self.problem.batch_size // IMAGES)

    @property
    def unit_shares(self) -> int:
        """Shares of the units."""
        return -(-self.problem.hidden[0] // (EDGE * self.unit_tiles))

    @property
    def blocks(self) -> int:
        """Blocks of the launch."""
        return self.image_shares * self.unit_shares

    @property
    def tiles(self) -> int:
        """Tiles of sixteen features, with the bias's one."""
        return self.problem.inputs // EDGE + 1

    @property
    def class_tiles(self) -> int:
        """Tiles of sixteen classes."""
        return -(-self.problem.classes // EDGE)

    @property
    def fragments(self) -> int:
        """Fragments of eight numbers that the blocks with the same units share."""
        return (self.tiles + self.class_tiles) * self.unit_tiles * WARP + self.class_tiles * BIASES

    @property
    def own(self) -> int:
        """Fragments of an owner."""
        return -(-self.fragments // self.image_shares)

    @property
    def parts(self) -> int:
        """Parts of a fragment that a thread adds up."""
        sharers = 1
        while 2 * sharers <= self.image_shares and 2 * sharers * self.own <= THREADS:
            sharers *= 2
        return -(-self.image_shares // sharers)

    @property
    def terms(self) -> dict[str, float]:
        """What a step grows with: shares whose parts are added up, and what a block multiplies and receives."""
        outputs = 2 * IMAGES * self.problem.hidden[0] / 1e3
        weights = float(self.tiles * self.unit_tiles)
        return {
            "share of images": float(self.image_shares),
            "tile of weights": weights,
            "thousand bytes of outputs": outputs,
            "tile of classes": float(self.class_tiles),
        }

    @property
    def images_shape(self) -> tuple[int, int, int, int, int, int, int]:
        """(shares, tiles of features, 2, tiles of images, 2, 8, 8) of a step."""
        return self.image_shares, self.tiles, 2, IMAGES // EDGE, 2, CHUNK, CHUNK

    @property
    def shared_bytes(self) -> int:
        """Dynamic shared memory of a block, in bytes; divided_hidden.cu asserts that it is enough."""
        padded, image_edges, edges = 2 * -(-self.tiles // GROUPS) * GROUPS, IMAGES // CHUNK, 2 * self.unit_tiles
        class_edges, class_tiles = -(-self.problem.classes // CHUNK), self.class_tiles
        matrices = padded * (image_edges + edges) + 2 * image_edges * (edges + class_tiles) + 2 * class_tiles * edges
        sums = max(edges, class_edges) if class_tiles > 1 else edges + class_edges
        biases, barrier = 4 * EDGE * class_tiles, 16
        return matrices * MATRIX_BYTES + GROUPS * IMAGES * CHUNK * 4 * sums + biases + barrier

    @property
    def mail_units(self) -> int:
        """Units of sixteen bytes of all mailboxes."""
        outputs = self.blocks * self.unit_tiles * IMAGES // EDGE * WARP
        parts = self.blocks * self.image_shares * self.own
        weights = self.unit_shares * (self.fragments + self.unit_tiles * self.class_tiles * WARP)
        return self.image_shares + SLOTS * (outputs + parts + weights)

    def macros(self, weights: list[int], biases: list[int]) -> tuple[tuple[str, str], ...]:
        """Those of divided_hidden.cu; `weights` and `biases` are the begins of the layers' parameters."""
        problem = self.problem
        numbers = {"IMAGE_SHARES": self.image_shares, "UNIT_TILES": self.unit_tiles, "BATCH_SIZE": problem.batch_size}
        numbers |= {"INPUT_COUNT": problem.inputs, "HIDDEN_UNITS": problem.hidden[0], "CLASS_COUNT": problem.classes}
        numbers |= {"SHARED_BYTES": self.shared_bytes, "FACTOR_HALVES": 1}
        listed = {"WEIGHT_BEGINS": ",".join(map(str, weights)), "BIAS_BEGINS": ",".join(map(str, biases))}
        return tuple((name, str(number)) for name, number in (numbers | listed).items())


def plan_for(problem: Problem, halves: int, multiprocessors: int) -> HiddenBatchPlan:  # noqa: ARG001
    """The fewest units a block that enough blocks have room for; MisfitError if there is none."""
    most = min(MOST_BLOCKS, multiprocessors)
    plans = [HiddenBatchPlan(problem, tiles) for tiles in range(1, GROUPS + 1)]
    plans = [plan for plan in plans if plan.blocks <= most and plan.parts <= MOST_PARTS]
    fitting = [plan for plan in plans if plan.shared_bytes <= MOST_SHARED_BYTES]
    if not fitting:
        units = f"{problem.inputs} inputs and {problem.hidden[0]} units at batch size {problem.batch_size:,}"
        raise MisfitError(f"{units} do not fit {most} multiprocessors.")
    return fitting[0]


def misfit(problem: Problem, steps: int, halves: int) -> str:
    """Why a problem fits no GPU, as a sentence; empty if it fits some."""
    if len(problem.hidden) != 1:
        return "Needs one hidden layer."
    if problem.classes > MOST_CLASSES:
        return f"{problem.classes} classes exceed the limit of {MOST_CLASSES}."
    if problem.hidden[0] > (most := min(MOST_UNITS, EDGE * MOST_TILES // HiddenBatchPlan(problem).class_tiles)):
        return f"{problem.hidden[0]:,} hidden units exceed the limit of {most:,} for {problem.classes} classes."
    try:
        plan = plan_for(problem, halves, MOST_BLOCKS)
    except MisfitError as error:
        return str(error)
    return too_large(steps, plan.images_shape)
