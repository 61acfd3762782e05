"""The memory of a training step: every tensor that it reads or writes.

It names arrays and knows no array library: `Device` hands them out. On a GPU that is `common.cuda.gpu.Gpu`; a test
hands out NumPy arrays and thereby runs the very step on the CPU.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import DTypeLike, NDArray

from common.problem import Params, Problem

KERNELS = Path(__file__).parents[1] / "kernels"

Array = Any  # a CuPy array, or NumPy's in tests; CuPy comes without types


class Device(Protocol):
    """The machine that a trainer runs on."""

    @property
    def stream_handle(self) -> int | None:
        """The handle of the CUDA stream that work is enqueued on; None without CUDA."""

    @property
    def has_clusters(self) -> bool:
        """Whether blocks can form thread-block clusters."""

    def empty(self, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
        """Uninitialised memory."""

    def upload(self, host: NDArray[Any]) -> Array:
        """A copy of a host array."""

    def overwrite(self, target: Array, host: NDArray[Any]) -> None:
        """Copy a host array over an array of the same shape and dtype."""

    def download(self, array: Array) -> NDArray[Any]:
        """A copy on the host; waits for the work that was enqueued before."""

    def zero(self, array: Array) -> None:
        """Enqueue the filling with zeros."""


MOST_ELEMENTS = 1 << 30  # of a tensor: kernels index in 32 bits, and their last block reaches a little further
ALIGNMENT = 64  # elements between which tensors begin: 256 bytes, what a library's fastest kernels ask for


class ParameterMemory:
    """Weights (I, O) and biases (O,) of all layers, float32, or their gradients: views into one flat array.

    One array, so that what is done to every parameter is one pass, over the gaps between tensors too.
    """

    def __init__(self, empty: Callable[[tuple[int, ...], DTypeLike], Array], problem: Problem) -> None:
        shapes: list[tuple[int, ...]] = [(layer.fan_in, layer.fan_out) for layer in problem.layers]
        shapes += [(layer.fan_out,) for layer in problem.layers]
        sizes = [math.prod(shape) for shape in shapes]
        begins = [0, *itertools.accumulate(-(-size // ALIGNMENT) * ALIGNMENT for size in sizes)]
        self.flat = empty((begins[-1],), np.float32)
        views = [
            self.flat[begin : begin + size].reshape(shape)
            for begin, size, shape in zip(begins, sizes, shapes, strict=False)
        ]
        count = len(problem.layers)
        self.weights, self.biases = views[:count], views[count:]
        self.weight_begins, self.bias_begins = begins[:count], begins[count : 2 * count]  # in flat


def check_sizes(problem: Problem, steps: int) -> None:
    """Raise ValueError where an epoch of so many steps has a tensor that the kernels' indices do not reach."""
    batch = problem.batch_size
    sizes = [(la.fan_in * la.fan_out, f"layer {la.fan_in}x{la.fan_out}") for la in problem.layers]
    sizes += [(batch * la.fan_out, f"batch of {batch}x{la.fan_out}") for la in problem.layers]
    elements, what = max([*sizes, (steps * batch * problem.inputs, f"images {steps * batch}x{problem.inputs}")])
    if elements > MOST_ELEMENTS:
        raise ValueError(f"{what}: {elements:,} numbers, the kernels' indices reach {MOST_ELEMENTS:,}")


class Workspace:
    """The tensors of one trainer. B batch, I fan-in, O fan-out, C classes; all float32 unless said.

    `memory` and `batches` are a recipe's; parts that need further tensors of a step have them from `memory` as well.
    The parameters are its own, zero, unless they are given.
    """

    def __init__(
        self, device: Device, problem: Problem, memory: Any, batches: Any, parameters: ParameterMemory | None = None
    ) -> None:
        batch = problem.batch_size
        self.memory = memory
        self.batches = batches  # (B, I) f32 and (B,) i32 for each step
        if parameters is None:
            parameters = ParameterMemory(device.empty, problem)
            device.zero(parameters.flat)
        self.parameters = parameters
        self.weights, self.biases = self.parameters.weights, self.parameters.biases
        self.outputs = [memory.empty((batch, layer.fan_out), np.float32) for layer in problem.layers]  # last: logits
        self.doutputs = [memory.empty((batch, layer.fan_out), np.float32) for layer in problem.layers]
        self.totals = device.empty((2,), np.float64)  # summed loss and number right since they were last zeroed

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
    """What a part is made from."""

    problem: Problem
    device: Any  # a Gpu for the parts of rungs; not typed as one, since stages are listed without CUDA's packages too
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
        """A kernel of stages/kernels, compiled for this device: call it with (grid, block, *arguments).

        With `cluster`, blocks come in clusters of so many, and `grid` counts those; with `shared_bytes` each block has
        so much shared memory besides what the kernel declares; with `cooperative` all blocks run at once; `macros` are
        what names stand for in the source.
        """
        how = {"cluster": cluster, "shared_bytes": shared_bytes, "cooperative": cooperative, "macros": macros}
        return self.device.kernel(KERNELS / file, name, **how)


def load_params(setup: Setup, params: Params) -> None:
    """Copy parameters from the host into the workspace."""
    for targets, sources in ((setup.tensors.weights, params.weights), (setup.tensors.biases, params.biases)):
        for target, source in zip(targets, sources, strict=True):
            setup.device.overwrite(target, source)


def read_params(setup: Setup) -> Params:
    """Copy the workspace's parameters to the host."""
    download = setup.device.download
    return Params(
        tuple(download(weight) for weight in setup.tensors.weights),
        tuple(download(bias) for bias in setup.tensors.biases),
    )
