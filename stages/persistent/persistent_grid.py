"""Persistent grid: one launch on all multiprocessors trains a whole epoch, for any network.

Why: in a graph a step is still a dozen kernels, about 1 us apart. Each fetches its weights from memory, and many
leave most of the chip idle.

Change: launch. One block a multiprocessor stays for the epoch. Blocks own tiles of the weights and keep them in
shared memory, so weights do not travel and an update needs no wait. Activations, gradients and partial sums go
through the L2 cache, with a barrier of all blocks after each phase: two a step for one hidden layer. Small last
layers form one phase: a block takes a row of the batch through all of them, to the loss and back. The launch absorbs
gemm, epilogue, head and update. Products use tensor cores, with three bfloat16 parts a factor, which keeps float32's
class.

Expect: 5 us per step for 784-256-10 with batches of 128, where the best reference takes 25: two barriers of 0.9 us,
about 0.8 us for the rows, and 1.5 to 2.5 us for the products. 8.5 us for 784-1024-10 and 6 us for 784-128x3-10 with
batches of 32, both with two barriers; 30 us for 784-784x4-10 with batches of 64, with fourteen.

Predict: on H200: 784-256-10, batch 128: 5 us; 784-1024-10, batch 128: 8.5 us; 784-128x3-10, batch 32: 6 us;
784-784x4-10, batch 64: 30 us.

Found: it makes a step about three to seven times as fast as the graph, and misses every estimate by about a third or
more: rows of the last layers, and waits for partial sums and for the busiest blocks, take longer than expected
(docs/notebook/persistent-grid.md). It loses to the graph where weights do not fit on the chip, as in 784-4096x3-10, and
in batches of thousands.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from common.cost import Arithmetic, Exchanges
from common.errors import MisfitError
from common.problem import Problem
from common.vocabulary import Regime
from stages.classic import cuda_graph
from stages.engine.parts import float32, int32
from stages.engine.recipe import Metrics, RunStep
from stages.engine.workspace import MOST_ELEMENTS, Array, Device, Setup
from stages.persistent import grid_plan
from stages.persistent.grid_plan import ALL_PARTS, LINE, THREADS, GridPlan, make_plan

SMALLEST_SHARED_BYTES = 64 << 10  # a block's maximum on the smallest GPU, sm_75


class GridEpoch(cuda_graph.EpochByItself):
    """An epoch by one cooperative launch; MisfitError for a problem that does not fit."""

    regime: ClassVar[Regime] = "one kernel"
    kernel: ClassVar[tuple[str, str]] = ("grid/persistent_grid.cu", "persistent_grid")
    plans: ClassVar[Any] = grid_plan  # the module of its `make_plan`
    parts: ClassVar[int] = ALL_PARTS  # bfloat16 parts of a factor
    # Of nine pairs of parts, the six that reach float32's class; a pixel is one part.
    arithmetic: ClassVar[tuple[Arithmetic, ...]] = (Arithmetic("bfloat16", 6, image_products=3),)

    def __init__(self, setup: Setup, step: RunStep, metrics: Metrics) -> None:  # noqa: ARG002
        tensors = setup.tensors
        self._grid = GridMemory(setup, self.kernel, self.parts, make=self.plans.make_plan)
        self._args = (tensors.parameters.flat, *self._grid.own, tensors.totals, self._grid.arrived)
        self._numbers = (self._grid.steps, float32(setup.problem.learning_rate))
        self._zero = setup.device.zero

    @classmethod
    def misfit(cls, problem: Problem, steps: int) -> str:
        """Why a problem with `steps` steps an epoch does not fit every GPU; empty if it fits."""
        return grid_misfit(problem, steps, cls.parts)

    @classmethod
    def exchanges(cls, problem: Problem, steps: int, multiprocessors: int, block_shared_bytes: int) -> Exchanges:
        """Grid barriers of a step, and its products' cycles; two barriers, the least, if no plan fits this GPU."""
        places = [0] * len(problem.layers)
        plan = cls.plans.make_plan(problem, steps, places, places, multiprocessors, block_shared_bytes, cls.parts)
        if plan is None:
            return Exchanges(grid_barriers=2)
        cycles, rows = plan.product_cycles(multiprocessors) / 1e3, -(-problem.batch_size // multiprocessors)
        terms = {
            "barrier": float(plan.barriers), "thousand cycles": cycles,
            "thousand cycles, weights in L2": 0.0 if plan.sizes.held else cycles,
            "thousand weights of rows": rows * sum(a.inputs * a.outputs for a in plan.layers[plan.sizes.wide :]) / 1e3,
            "layers of rows": float(rows * len(plan.layers[plan.sizes.wide :])),
        }  # fmt: skip
        return Exchanges(grid_barriers=plan.barriers, terms=terms)

    def __call__(self, with_metrics: bool) -> None:
        """Enqueue every step of an epoch, in order."""
        self._zero(self._grid.arrived)
        self._grid.train(
            self._grid.blocks, THREADS, *self._grid.batches, *self._args, *self._numbers, int32(with_metrics)
        )


class GridMemory:
    """A kernel for `networks` at once on an equal share of the blocks each, and its memory besides the networks' own.

    `kernel` is its file and name, `make` makes the plan, `chunks` are those of `make_plan`; MisfitError if no plan
    fits. All memory but the batches has a row a network.
    """

    def __init__(
        self,
        setup: Setup,
        kernel: tuple[str, str],
        parts: int,
        networks: int = 1,
        chunks: tuple[int, ...] = (),
        make: Callable[..., GridPlan | None] = make_plan,
    ) -> None:
        tensors, device = setup.tensors, setup.device
        self.blocks = device.multiprocessors // networks
        parameters, shared_bytes = tensors.parameters, device.block_shared_bytes
        plan = make(
            setup.problem,
            len(tensors.batches),
            parameters.weight_begins,
            parameters.bias_begins,
            self.blocks,
            shared_bytes,
            parts,
            chunks,
        )
        if plan is None:
            blocks = f"{self.blocks} blocks with {shared_bytes >> 10} KiB of shared memory each"
            raise MisfitError(f"No division of the network fits {blocks}.")
        space, macros = plan.shared_bytes, plan.macros
        self.train = setup.kernel(*kernel, cooperative=True, shared_bytes=space, macros=macros)
        labels = device.empty((plan.steps, plan.sizes.batch), np.int32)
        for own, (_, others) in zip(labels, tensors.batches, strict=True):
            own[...] = others
        self.steps = int32(plan.steps)
        self.batches = (slices_of(device, [pixels for pixels, _ in tensors.batches], plan), labels)
        workspace = device.empty((networks, -(-plan.workspace // LINE) * LINE), np.float32)
        device.zero(workspace)
        self.own = (workspace, device.empty((networks, self.blocks, 2), np.float64))  # and the totals of each block
        self.arrived = device.empty((networks, LINE), np.uint32)  # to be zeroed before each launch


def grid_misfit(problem: Problem, steps: int, parts: int) -> str:
    """Why a problem does not fit, as a sentence; empty if it fits."""
    places = [0] * len(problem.layers)
    if make_plan(problem, steps, places, places, 1, SMALLEST_SHARED_BYTES, parts):
        return ""
    numbers = problem.batch_size * max(steps * problem.inputs, 4 * sum(problem.hidden))
    if numbers < MOST_ELEMENTS // 2:
        units = f"{problem.layers[-1].fan_in:,} and {problem.classes:,} units"
        return f"A row of {units} needs more than {SMALLEST_SHARED_BYTES >> 10} KiB of shared memory."
    return f"{steps:,} steps of {problem.batch_size:,} images exceed the limit of {MOST_ELEMENTS:,} numbers."


def slices_of(device: Device, batches: Sequence[Array], plan: GridPlan) -> Array:
    """The batches (B, I) in the order of the first layer's tiles: (steps, slices, rows, tile_k), padded with zeros.

    They are bfloat16, a float32's upper half, in which 256ths are exact.
    """
    images = device.empty(plan.images_shape, np.uint16)
    device.zero(images)
    tile_k = plan.images_shape[-1]
    for own, pixels in zip(images, batches, strict=True):
        halves = (pixels.view(np.uint32) >> 16).astype(np.uint16)
        for index, target in enumerate(own):
            source = halves[:, index * tile_k : (index + 1) * tile_k]
            target[: len(source), : source.shape[1]] = source
    return images


STAGE = cuda_graph.STAGE.climb(
    "persistent-grid", "Persistent grid", words="on all multiprocessors", group="beyond", launch=GridEpoch
)
