"""A persistent grid: one cooperative launch trains a whole epoch, on every multiprocessor, whatever the layers.

Why: in a graph a step is still a dozen kernels, each with about 1 us from the one before it; each fetches its weights
from memory, and many of them leave most of the chip idle.

Change: launch. One block a multiprocessor stays for the epoch. Blocks own tiles of the weights and keep them in shared
memory, so that no weight travels and its update waits for nobody; only activations, gradients and parts of sums do,
through the L2 cache, with a barrier of all blocks after each phase: two a step for one hidden layer. Last layers that
are small are one phase: a block takes a row of the batch through all of them, to the loss and back. It absorbs gemm,
epilogue, head and update. Products are on tensor cores, in three bfloat16 parts a factor, which keeps float32's class.

Expect: 5 us a step for 784-256-10 with batches of 128, where the best reference takes 25: two barriers of 0.9 us, about
0.8 us for the rows, and 1.5 to 2.5 us for the products. 8.5 us for 784-1024-10 and 6 us for 784-128x3-10 with batches
of 32, both with two barriers; 30 us for 784-784x4-10 with batches of 64, with fourteen.

Found: 12.4 us for 784-1024-10 on an H200, 6.5, 9.0 and 48.4 for the others; 14, 29, 25 and 87 us with the first
version of the kernel. Factors in tf32 parts took twice the cycles that they should have, and copies that began 16 bytes
after where memory's sectors do up to a fifth of a step. What is left above the estimate are rows, and waiting for parts
of sums (docs/notes.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from common.cost import Exchanges
from common.problem import Problem
from stages.classic import r6_cuda_graph
from stages.engine.parts import float32, int32
from stages.engine.recipe import Launch, Metrics, RunStep
from stages.engine.workspace import MOST_ELEMENTS, Array, Device, Setup
from stages.persistent.grid_plan import ALL_PARTS, THREADS, GridPlan, make_plan

SMALLEST_SHARED_BYTES = 64 << 10  # that a block can have, of all GPUs from sm_75 on


class GridEpoch(Launch):
    """An epoch by one cooperative launch; raises ValueError for a problem that does not fit."""

    needs: ClassVar[tuple[str, ...]] = ("cuda",)
    rung: ClassVar[str] = "persistent-grid"
    parts: ClassVar[int] = ALL_PARTS  # of a number, that products take

    def __init__(self, setup: Setup, step: RunStep, metrics: Metrics) -> None:  # noqa: ARG002
        tensors, device = setup.tensors, setup.device
        if reason := self.misfit(setup.problem, len(tensors.batches)):
            raise ValueError(f"{self.rung}: {reason}")
        self._blocks = device.multiprocessors
        plan = plan_for(setup, self.parts)
        self._zero = device.zero
        self._train = setup.kernel(
            "grid/persistent_grid.cu",
            "persistent_grid",
            cooperative=True,
            shared_bytes=plan.shared_bytes,
            macros=plan.macros,
        )
        images = slices_of(device, [pixels for pixels, _ in tensors.batches], plan)
        labels = device.empty((plan.steps, plan.sizes.batch), np.int32)
        for own, (_, others) in zip(labels, tensors.batches, strict=True):
            own[...] = others
        workspace = device.empty((plan.workspace,), np.float32)
        self._arrived = device.empty((1,), np.uint32)
        device.zero(workspace)
        block_totals = device.empty((self._blocks, 2), np.float64)
        self._args = (images, labels, tensors.parameters.flat, workspace, block_totals, tensors.totals, self._arrived)
        self._numbers = (int32(plan.steps), float32(setup.problem.learning_rate))

    @classmethod
    def for_validation(cls) -> type[Launch]:
        """A captured graph of the parts that the training kernel absorbs."""
        return r6_cuda_graph.GraphEpoch

    @classmethod
    def misfit(cls, problem: Problem, steps: int) -> str:
        """Why a problem of so many steps an epoch does not fit every GPU, and what to try; empty if it does."""
        reason = _misfit(problem, steps, cls.parts)
        return f"{reason}; try {r6_cuda_graph.STAGE.name}" if reason else ""

    @classmethod
    def exchanges(cls, problem: Problem, steps: int, multiprocessors: int, block_shared_bytes: int) -> Exchanges:
        """The barriers of a step; as few as there can be where no plan fits what is known of the GPU."""
        places = [0] * len(problem.layers)
        plan = make_plan(problem, steps, places, places, multiprocessors, block_shared_bytes, cls.parts)
        return Exchanges(grid_barriers=plan.barriers if plan else 2)

    def __call__(self, with_metrics: bool) -> None:
        """Enqueue every step of an epoch, in order."""
        self._zero(self._arrived)
        self._train(self._blocks, THREADS, *self._args, *self._numbers, int32(with_metrics))


def plan_for(setup: Setup, parts: int) -> GridPlan:
    """The division of the workspace's problem among the device's multiprocessors."""
    parameters = setup.tensors.parameters
    plan = make_plan(
        setup.problem,
        len(setup.tensors.batches),
        parameters.weight_begins,
        parameters.bias_begins,
        setup.device.multiprocessors,
        setup.device.block_shared_bytes,
        parts,
    )
    assert plan is not None, "misfit() has tried it for the smallest GPU"
    return plan


def _misfit(problem: Problem, steps: int, parts: int) -> str:
    """Why a problem does not fit; empty if it does."""
    places = [0] * len(problem.layers)
    if make_plan(problem, steps, places, places, 1, SMALLEST_SHARED_BYTES, parts):
        return ""
    numbers = problem.batch_size * max(steps * problem.inputs, 4 * sum(problem.hidden))
    if numbers < MOST_ELEMENTS // 2:
        units = f"{problem.layers[-1].fan_in:,} and {problem.classes:,} units"
        return f"a row of {units} takes more than {SMALLEST_SHARED_BYTES >> 10} KiB of shared memory"
    return f"{steps:,} steps of {problem.batch_size:,} images: its memory reaches {MOST_ELEMENTS:,} numbers"


def slices_of(device: Device, batches: Sequence[Array], plan: GridPlan) -> Array:
    """The batches (B, I) as the first layer's tiles take them: (steps, slices, rows, tile_k), zeros around them.

    In bfloat16, which is a float32's first half: 256ths lose nothing.
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


STAGE = r6_cuda_graph.STAGE.climb("persistent-grid", "Persistent grid", group="beyond", launch=GridEpoch)
