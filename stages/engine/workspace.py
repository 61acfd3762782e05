"""The tensors that a training step reads or writes.

A `Device` allocates them: on a GPU `common.cuda.gpu.Gpu`, in tests one with NumPy arrays, which runs the same step on
the CPU.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import DTypeLike, NDArray

from common.errors import MisfitError
from common.problem import Params, Problem

KERNELS = Path(__file__).parents[1] / "kernels"

Array = Any  # a CuPy array, or a NumPy array in tests; CuPy has no type hints


class Device(Protocol):
    """The machine that a trainer runs on."""

    @property
    def kind(self) -> Literal["cpu", "gpu"]:
        """Which of the two."""

    @property
    def detail(self) -> str:
        """Text beside a stage's title in reports; may be empty."""

    @property
    def stream_handle(self) -> int | None:
        """The handle of the CUDA stream that work is enqueued on; None without CUDA."""

    @property
    def has_clusters(self) -> bool:
        """Whether blocks can form thread-block clusters."""

    @property
    def keeps_columns(self) -> bool:
        """Whether a weight (I, O) lies in memory column by column, so that each unit has its inputs in a row."""

    def empty(self, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
        """Uninitialised memory."""

    def upload(self, host: NDArray[Any]) -> Array:
        """A copy of a host array."""

    def overwrite(self, target: Array, host: NDArray[Any]) -> None:
        """Copy a host array over an array of the same shape and dtype."""

    def download(self, array: Array) -> NDArray[Any]:
        """A copy on the host; waits for the work enqueued before."""

    def zero(self, array: Array) -> None:
        """Enqueue zeros."""


MOST_ELEMENTS = 1 << 30  # of a tensor: the kernels have 32-bit indices, and the last block reaches past the end
ALIGNMENT = 64  # elements, or 256 bytes, which the fastest library kernels need


class ParameterMemory:
    """Weights (I, O) and biases (O,) of all layers, or their gradients, float32: views into one flat array.

    One kernel can pass over all parameters, gaps for alignment included. With `columns` a weight is stored (O, I).
    """

    def __init__(
        self, empty: Callable[[tuple[int, ...], DTypeLike], Array], problem: Problem, columns: bool = False
    ) -> None:
        shapes: list[tuple[int, ...]] = [(layer.fan_in, layer.fan_out) for layer in problem.layers]
        shapes += [(layer.fan_out,) for layer in problem.layers]
        sizes = [math.prod(shape) for shape in shapes]
        begins = [0, *itertools.accumulate(-(-size // ALIGNMENT) * ALIGNMENT for size in sizes)]
        self.flat = empty((begins[-1],), np.float32)
        views = [
            self.flat[begin : begin + size].reshape(shape[::-1]).T
            if columns
            else self.flat[begin : begin + size].reshape(shape)
            for begin, size, shape in zip(begins, sizes, shapes, strict=False)
        ]
        count = len(problem.layers)
        self.weights, self.biases = views[:count], views[count:]
        self.weight_begins, self.bias_begins = begins[:count], begins[count : 2 * count]  # elements of `flat`


def check_sizes(problem: Problem, steps: int) -> None:
    """Raise MisfitError if a tensor of an epoch of this many steps exceeds the kernels' indices."""
    batch = problem.batch_size
    sizes = [(la.fan_in * la.fan_out, f"layer {la.fan_in}x{la.fan_out}") for la in problem.layers]
    sizes += [(batch * la.fan_out, f"batch of {batch}x{la.fan_out}") for la in problem.layers]
    elements, what = max([*sizes, (steps * batch * problem.inputs, f"images {steps * batch}x{problem.inputs}")])
    if elements > MOST_ELEMENTS:
        ways = {"images": "--max-steps", "batch": "--batch-size or --hidden", "layer": "--hidden"}
        raise MisfitError(
            f"{what}: {elements:,} numbers exceed the limit of {MOST_ELEMENTS:,} in the kernels' indices; choose a "
            f"smaller {ways[what.split()[0]]}"
        )


class Workspace:
    """The tensors of one trainer, float32 unless stated: B batch, I fan-in, O fan-out, C classes.

    `memory` and `batches` come from the recipe; parts allocate further tensors of a step from `memory`. Parameters are
    new and zero unless they are given; so is the optimizer's state, which its update writes.
    """

    def __init__(
        self, device: Device, problem: Problem, memory: Any, batches: Any, parameters: ParameterMemory | None = None
    ) -> None:
        batch = problem.batch_size
        self.memory = memory
        self.batches = batches  # (B, I) f32 and (B,) i32 for each step
        if parameters is None:
            parameters = ParameterMemory(device.empty, problem, device.keeps_columns)
            device.zero(parameters.flat)
        self.parameters = parameters
        self.state = [device.empty(shape, np.float32) for shape in problem.state_shapes]
        self.weights, self.biases = self.parameters.weights, self.parameters.biases
        self.outputs = [memory.empty((batch, layer.fan_out), np.float32) for layer in problem.layers]  # last: logits
        self.doutputs = [memory.empty((batch, layer.fan_out), np.float32) for layer in problem.layers]
        self.totals = device.empty((2,), np.float64)  # summed loss and number correct, since they were last zeroed

    @property
    def logits(self) -> Array:
        """(B, C)."""
        return self.outputs[-1]

    @property
    def dlogits(self) -> Array:
        """(B, C)."""
        return self.doutputs[-1]


@dataclass(frozen=True)
class Setup:
    """The problem, the device and the tensors that a part is made from."""

    problem: Problem
    device: Any  # a `common.cuda.gpu.Gpu`, whose module needs packages that a machine without a GPU lacks
    tensors: Workspace

    def kernel(
        self,
        file: str,
        name: str,
        cluster: int | None = None,
        shared_bytes: int = 0,
        cooperative: bool = False,
        macros: tuple[tuple[str, str], ...] = (),
    ) -> Any:
        """A kernel of stages/kernels, compiled for this device; call it with (grid, block, *arguments).

        `cluster` is the number of blocks in a cluster, and `grid` then counts clusters. `shared_bytes` is each block's
        dynamic shared memory. `cooperative` makes all blocks run at once. `macros` are pairs of a name and its value.
        """
        how = {"cluster": cluster, "shared_bytes": shared_bytes, "cooperative": cooperative, "macros": macros}
        return self.device.kernel(KERNELS / file, name, **how)


def load_params(setup: Setup, params: Params) -> None:
    """Copy parameters from the host into the workspace."""
    for target, source in zip(_trained(setup), params.arrays, strict=True):
        setup.device.overwrite(target, source)


def read_params(setup: Setup) -> Params:
    """Copy the workspace's parameters to the host."""
    return Params.of(list(map(setup.device.download, _trained(setup))), len(setup.tensors.weights))


def _trained(setup: Setup) -> tuple[Array, ...]:
    """All that a run begins with and ends in, in the order of `Params.arrays`."""
    return (*setup.tensors.weights, *setup.tensors.biases, *setup.tensors.state)
