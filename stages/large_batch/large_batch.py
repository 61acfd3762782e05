"""Large batch: activations, images and weights as float16 halves in memory; few kernels a step.

Why: with batches of thousands the rungs above multiply float32 numbers in memory on the GPU's slowest unit, or round
them on their way into tensor cores, which reads four bytes for two. Activations travel to memory and back between
kernels: a batch of 8,192 has 8 MB of them for 256 units, and four kernels read or write them.

Change: launch. Numbers of a product are float16 halves in memory: two for float32's class, and one for a pixel, which
is exact. cuBLASLt multiplies images by the halves of the weights, side by side as one matrix. One kernel adds bias and
ReLU and goes through the last layer, softmax and back, sixteen images at a time, on tensor cores. cuBLASLt multiplies
its gradient by the images, in as many parts of the batch as measured fastest. A last kernel adds up these parts and the
head's small gradients, updates all parameters and writes the halves of the weights. With several hidden layers the one
kernel takes images through all of them and back, with their weights in shared memory, and cuBLASLt multiplies all their
weight gradients at once, a fifth kernel on a branch of the graph beside the first layer's gradient.

Expect: 784-256-10 in batches of 8,192: 13 us for the first product, 8 for the head, 15 for the weight gradient, 3 for
the update, 39 us instead of 260. 20 us at 2,048 and 13.5 at 512, where each kernel takes 2 to 4 us. 784-128x3-10 at
8,192 on an H100: 8 us, 12 for the layers, 8 and 5 for the weight gradients and 4, so 37 us.

Predict: on H200: 784-256-10, batch 8192: 39 us; 784-256-10, batch 2048: 20 us; 784-256-10, batch 512: 13.5 us.

Found: from 512 images on a step of 784-256-10 is three to six times as fast as `cuda-graph` (study `batch-size`).
Estimates are met up to 2,048 images; at 8,192 the head is slower than expected, and with three hidden layers the kernel
for all of them by far (docs/notebook/large-batch.md). At 512 latency binds: a quarter of the images takes nearly as
long.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import DTypeLike

from common.cost import Arithmetic, Weights
from common.problem import Problem
from common.vocabulary import Regime
from stages.classic import cuda_graph
from stages.engine.misfit import require_shared_bytes
from stages.engine.parts import float32, int32
from stages.engine.recipe import Metrics, RunStep
from stages.engine.workspace import MOST_ELEMENTS, Array, Setup
from stages.large_batch.layout import (
    CLASSES,
    EXACT,
    MOST_FURTHER_SPLITS,
    MOST_SPLITS,
    MOST_UNITS,
    MOST_UNITS_OF_SEVERAL,
    OUTPUT_SCALE,
    PAD,
    UPDATE_THREADS,
    WARP,
    WEIGHT_SCALE,
    Layout,
    Macros,
    up,
)

FURTHER = 0  # the branch of all further layers' weight gradients

Product = Callable[[Array, Array, Array, bool, float], None]
"""Enqueues out = alpha * op(a) @ b, where op transposes if its flag says so; for each of several matrices."""


Gradients = tuple[Array, Array]
"""The first layer's weight gradients (splits, features, wide); all further layers' (further * splits, wide, wide)."""


class HalvesEpoch(cuda_graph.EpochByItself):
    """An epoch on float16 halves, as a graph: two or three products and two kernels a step.

    The library multiplies images by the first layer's weights. One kernel takes the sums to the loss and back to their
    gradient: `hidden_head` for one hidden layer, `hidden_layers` for more. The library multiplies the images by that
    gradient, and beside it, on a branch, the outputs of all further layers by theirs. `update_all` updates every
    parameter.
    """

    needs: ClassVar[tuple[str, ...]] = ("cuda", "cublas", "sm_80")
    regime: ClassVar[Regime] = "graph"
    halves: ClassVar[int] = EXACT
    # high * high + high * low + low * high; a pixel is one half.
    arithmetic: ClassVar[tuple[Arithmetic, ...]] = (Arithmetic("float16", 3, image_products=2),)
    weights: ClassVar[Weights | None] = "gradients"
    layout: ClassVar[type[Layout]] = Layout

    def __init__(self, setup: Setup, step: RunStep, metrics: Metrics) -> None:  # noqa: ARG002
        problem, tensors, device = setup.problem, setup.tensors, setup.device
        self._layout = layout = self.layout(problem, self.halves, device.multiprocessors, device.block_shared_bytes)
        require_shared_bytes(device, layout.most_bytes)
        self._head = self.kernel(setup, layout.head, layout.head_macros(tensors.parameters), layout.head_bytes)
        self._tensors, self._device = tensors, device
        self._batches = [(self.images(pixels), labels) for pixels, labels in tensors.batches]
        further = layout.further
        self._weights = self._zeros(layout.features, layout.wide)
        self._further_weights = self._zeros(further, layout.halves, layout.width, layout.width + PAD)
        self._by_class = self._zeros(layout.halves, CLASSES, layout.width)
        self._by_unit = self._zeros(layout.halves, layout.width, CLASSES)
        self._biases = self._zeros(2 + further, layout.width, dtype=np.float32)
        self._sums = device.empty((layout.rows, layout.wide), np.float32 if layout.halves == EXACT else np.float16)
        self._outputs = self._zeros(further, layout.rows, layout.wide)
        self._dsums = self._zeros(1 + further, layout.rows, layout.wide)
        self._partials = device.empty((layout.head_blocks, layout.share), np.float32)
        self._block_totals = device.empty((layout.head_blocks, 2), np.float64)
        self.prepare(setup)
        self._replay = {due: device.capture(lambda due=due: self._epoch(due)) for due in (False, True)}

    def _zeros(self, *shape: int, dtype: DTypeLike = np.float16) -> Array:
        array = self._device.empty(shape, dtype)
        array[...] = 0
        return array

    def images(self, pixels: Array) -> Array:
        """The images of a batch (B, I) as the first product takes them."""
        images = self._zeros(self._layout.rows, self._layout.features)
        images[: len(pixels), : pixels.shape[1]] = pixels
        return images

    def prepare(self, setup: Setup) -> None:
        """Make the products and the update, and choose the fastest way to multiply the gradients."""
        layout, device = self._layout, setup.device
        self._update = self.kernel(setup, "update_all", layout.update_macros(setup.tensors.parameters))
        self._product = self.product(setup)
        splits = layout.splits(MOST_SPLITS)
        further_splits = layout.splits(MOST_FURTHER_SPLITS if layout.further else 1)
        gradients = device.empty((max(splits), layout.features, layout.wide), np.float32)
        further = device.empty((layout.further * max(further_splits), layout.wide, layout.wide), np.float32)
        ways = [(gradients[:own], further[: layout.further * its]) for own in splits for its in further_splits]
        own, _ = self._batches[0]
        self._step_by(ways[0], *self._batches[0], with_totals=True)  # chooses the library's algorithms
        for way in ways:
            self._update_by(way, own)
        self._gradients = ways[self.fastest(setup, [partial(self._update_by, way, own) for way in ways])]

    def kernel(self, setup: Setup, name: str, macros: Macros, shared_bytes: int = 0) -> Any:
        """A kernel of our own, by name."""
        return setup.kernel(f"large_batch/{name}.cu", name, shared_bytes=shared_bytes, macros=macros)

    def product(self, setup: Setup) -> Product:
        """The library's product."""
        from common.cuda.cublas import Matmul  # imported late: a machine without cuBLAS still lists the rung

        matmul = Matmul(setup.device)
        return lambda a, b, out, trans_a, alpha: matmul(a, b, out, trans_a, False, alpha, 0.0)

    def fastest(self, setup: Setup, ways: list[Callable[[], None]]) -> int:
        """Index of the fastest way to multiply and add up the weight gradient."""
        layout, problem = self._layout, setup.problem
        sizes = problem.batch_size, layout.features, layout.wide, layout.head_blocks
        subject = " ".join(map(str, sizes)) + (f", {layout.further} further layers beside" if layout.further else "")
        chosen: int = setup.device.trials("Weight gradients of large batches").fastest(subject, ways)
        return chosen

    @classmethod
    def misfit(cls, problem: Problem, steps: int) -> str:
        """Why a problem does not fit; empty if it fits."""
        if not problem.hidden:
            return "Needs at least one hidden layer."
        most, several = (MOST_UNITS, "") if len(problem.hidden) == 1 else (MOST_UNITS_OF_SEVERAL, " a layer")
        if max(problem.hidden) > most:
            return f"{max(problem.hidden):,} hidden units{several} exceed the limit of {most}."
        if problem.classes > CLASSES:
            return f"{problem.classes} classes exceed the limit of {CLASSES}."
        layout = cls.layout(problem, cls.halves, 1 << 10)  # tiles are the smaller, the more multiprocessors there are
        if (needed := layout.most_bytes) > (limit := layout.block_shared_bytes):
            return f"Needs {needed:,} bytes of shared memory a block; no GPU has more than {limit:,}."
        if steps * problem.batch_size * up(problem.inputs, 16) > MOST_ELEMENTS:
            return f"{steps:,} steps of {problem.batch_size:,} images exceed the limit of {MOST_ELEMENTS:,} numbers."
        return ""

    def __call__(self, with_metrics: bool) -> None:
        """Enqueue every step of an epoch, in order."""
        self._replay[with_metrics]()

    def _epoch(self, with_totals: bool) -> None:
        """Split the weights, which may be new, then train on every batch."""
        self.split_weights()
        for batch in self._batches:
            self.step(*batch, with_totals)

    def split_weights(self) -> None:
        """Enqueue the weights' halves."""
        first, further = self._gradients
        self._enqueue_update((first[:0], further[:0]), shares=0, with_totals=False)

    def step(self, images: Array, labels: Array, with_totals: bool) -> None:
        """Enqueue a step on a batch."""
        self._step_by(self._gradients, images, labels, with_totals)

    def _step_by(self, gradients: Gradients, images: Array, labels: Array, with_totals: bool) -> None:
        self._product(images, self._weights, self._sums, False, 1 / WEIGHT_SCALE)
        self._enqueue_head(labels, with_totals)
        self._update_by(gradients, images, with_totals)

    def _enqueue_head(self, labels: Array, with_totals: bool) -> None:
        layout, tensors = self._layout, self._tensors
        problem, scale = layout.problem, float32(layout.gradient_scale)
        out = self._dsums, self._partials, self._block_totals
        sizes = [problem.batch_size]
        args: tuple[Any, ...]
        if layout.further:
            args = self._further_weights, self._by_unit, self._biases, labels, self._outputs, *out
        else:
            args = tensors.biases[0], self._by_class, self._by_unit, tensors.biases[1], labels, *out
            sizes += [*problem.hidden, problem.classes]
        args = self._sums, *args, *map(int32, sizes), scale, int32(with_totals)
        self._head(layout.head_blocks, WARP * layout.head_warps, *args)

    def _update_by(self, gradients: Gradients, images: Array, with_totals: bool = False) -> None:
        """Multiply the parts of a batch to gradients, then update all parameters by them."""
        first, further = gradients
        scale = 1 / self._layout.gradient_scale
        if self._layout.further:
            left, right = _in_parts(self._outputs, len(further)), _in_parts(self._dsums[1:], len(further))
            with self._device.beside(FURTHER):
                self._product(left, right, further, True, scale / OUTPUT_SCALE)
        self._product(_in_parts(images, len(first)), _in_parts(self._dsums[0], len(first)), first, True, scale)
        if self._layout.further:
            self._device.join()
        self._enqueue_update(gradients, self._layout.head_blocks, with_totals)

    def _enqueue_update(self, gradients: Gradients, shares: int, with_totals: bool) -> None:
        layout, tensors = self._layout, self._tensors
        first, further = gradients
        further_splits = len(further) // max(layout.further, 1)
        self._update(
            layout.update_blocks,
            UPDATE_THREADS,
            *(*gradients, self._partials, tensors.parameters.flat, self._weights, self._further_weights),
            *(self._by_class, self._by_unit, self._biases, self._block_totals, tensors.totals),
            *map(int32, (len(first), further_splits, layout.features, layout.width, shares)),
            float32(layout.problem.learning_rate),
            int32(with_totals),
        )


def _in_parts(matrices: Array, parts: int) -> Array:
    """Matrices (.., rows, columns) as parts of their rows: (parts, rows of all / parts, columns)."""
    return matrices.reshape(parts, -1, matrices.shape[-1])


STAGE = cuda_graph.STAGE.climb(
    "large-batch",
    "Large batch, halves",
    words="two float16 parts a number, few kernels",
    group="beyond",
    launch=HalvesEpoch,
)
