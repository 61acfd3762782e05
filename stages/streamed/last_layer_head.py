"""The head together with the last layer: one kernel in one cluster of blocks."""

from __future__ import annotations

from typing import ClassVar

from common.cost import Arithmetic
from common.problem import Problem
from stages.engine.misfit import require_cluster, require_shared_bytes
from stages.engine.parts import blocks, float32, int32
from stages.engine.recipe import Head
from stages.engine.workspace import Array, Setup
from stages.fusion.fused_head import FusedHead

BLOCKS, THREADS, MOST_CLASSES = 16, 512, 32  # last_layer.cu
MOST_BYTES = 224 * 1024  # of shared memory a block, on any GPU


class LastLayerHead(Head):
    """The head and everything of the last layer: forward, backward and update."""

    needs: ClassVar[tuple[str, ...]] = ("cuda", "sm_90")
    writes_parameters: ClassVar[bool] = True
    arithmetic: ClassVar[Arithmetic | None] = Arithmetic("float32", multiprocessors=BLOCKS)

    def __init__(self, setup: Setup) -> None:
        problem, tensors = setup.problem, setup.tensors
        macros = (("CLASSES", str(problem.classes)),)
        require_shared_bytes(setup.device, shared_bytes(problem))
        self._kernel = setup.kernel(
            "streamed/last_layer.cu", "last_layer", BLOCKS, shared_bytes(problem), macros=macros
        )
        require_cluster(self._kernel, THREADS, BLOCKS)
        self._read = (tensors.outputs[-2], tensors.weights[-1], tensors.biases[-1])
        self._written = (tensors.doutputs[-2], tensors.totals)
        self._sizes = (int32(problem.batch_size), int32(problem.layers[-1].fan_in))
        self._rate = float32(problem.learning_rate)

    @classmethod
    def for_validation(cls) -> type[Head]:
        """A head without an update."""
        return FusedHead

    @classmethod
    def misfit(cls, problem: Problem, steps: int) -> str:  # noqa: ARG003
        """Why a problem does not fit the cluster; empty if it fits."""
        fan_in, needed = problem.layers[-1].fan_in, shared_bytes(problem)
        if not problem.hidden:
            return "Needs at least one hidden layer."
        if problem.classes > MOST_CLASSES:
            return f"{problem.classes} classes exceed the limit of {MOST_CLASSES}."
        if fan_in % 4:
            return f"{fan_in} units before the classes are not a multiple of 4."
        if fan_in > BLOCKS * 2 * THREADS or needed > MOST_BYTES:
            what = f"Batch size {problem.batch_size:,} with {fan_in:,} units before the classes"
            most = f"{MOST_BYTES:,} bytes a block and {BLOCKS * 2 * THREADS:,} units"
            return f"{what} needs {needed:,} bytes a block; the limits are {most}."
        return ""

    def __call__(self, labels: Array, with_totals: bool) -> None:
        """Compute the last hidden layer's gradient from its output and labels (B,); update the last layer."""
        self._kernel(1, THREADS, *self._read, labels, *self._written, *self._sizes, int32(with_totals), self._rate)


def shared_bytes(problem: Problem, cluster: int = BLOCKS) -> int:
    """Shared memory of each block, in bytes."""
    batch, own = problem.batch_size, 4 * blocks(problem.layers[-1].fan_in, 4 * cluster)
    of_threads = THREADS * (2 * problem.classes | 1)
    return 4 * (batch * (own | 4) + (own + 2 * batch) * problem.classes + of_threads + 2 * batch)
