"""An epoch of a network with one hidden layer on float16 halves: two products and two kernels a step, as a graph.

The library multiplies images by the first layer's weights. `hidden_head` takes the sums to the loss and back to their
gradient, which the library multiplies by the images, and `update_all` updates every parameter.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import numpy as np

from common.cost import Arithmetic, Weights
from common.errors import MisfitError
from common.problem import Problem
from stages.classic import r6_cuda_graph
from stages.engine.misfit import closest_rung, require_shared_bytes
from stages.engine.parts import float32, int32
from stages.engine.recipe import Launch, Metrics, RunStep
from stages.engine.workspace import MOST_ELEMENTS, Array, Setup
from stages.large_batch.layout import (
    CLASSES,
    EXACT,
    HEAD_THREADS,
    MOST_UNITS,
    UPDATE_THREADS,
    WEIGHT_SCALE,
    Layout,
    up,
)

Product = Callable[[Array, Array, Array, bool, float], None]
"""Enqueues out = alpha * op(a) @ b, where op transposes if its flag says so; for each of several matrices."""


class HalvesEpoch(Launch):
    """An epoch on float16 halves; MisfitError for a network without exactly one hidden layer."""

    needs: ClassVar[tuple[str, ...]] = ("cuda", "cublas", "sm_80")
    halves: ClassVar[int] = EXACT
    # high * high + high * low + low * high; a pixel is one half.
    arithmetic: ClassVar[tuple[Arithmetic, ...]] = (Arithmetic("float16", 3, image_products=2),)
    weights: ClassVar[Weights | None] = "gradients"

    def __init__(self, setup: Setup, step: RunStep, metrics: Metrics) -> None:  # noqa: ARG002
        problem, tensors, device = setup.problem, setup.tensors, setup.device
        if reason := self.misfit(problem, len(tensors.batches)):
            raise MisfitError(reason)
        self._layout = layout = Layout(problem, self.halves, device.multiprocessors)
        with closest_rung(r6_cuda_graph.STAGE.name):
            require_shared_bytes(device, layout.head_bytes)
        self._head = self.kernel(setup, "hidden_head", layout.head_macros, layout.head_bytes)
        self._update = self.kernel(setup, "update_all", layout.macros)
        self._product = self.product(setup)
        self._tensors = tensors
        batch, steps = problem.batch_size, len(tensors.batches)

        def zeros(*shape: int) -> Array:
            array = device.empty(shape, np.float16)
            array[...] = 0
            return array

        images = zeros(steps * batch, layout.features)
        self._batches = []
        for step_number, (pixels, labels) in enumerate(tensors.batches):
            own = images[step_number * batch : (step_number + 1) * batch]
            own[:, : problem.inputs] = pixels
            self._batches.append((own, labels))
        self._weights = zeros(layout.features, layout.wide)
        self._last_weights = zeros(layout.halves, CLASSES, layout.width), zeros(layout.halves, layout.width, CLASSES)
        self._sums = device.empty((batch, layout.wide), np.float32 if layout.halves == EXACT else np.float16)
        self._dsums = device.empty((batch, layout.wide), np.float16)
        gradients = device.empty((max(layout.splits), layout.features, layout.wide), np.float32)
        self._partials = device.empty((layout.head_blocks, layout.share), np.float32)
        self._block_totals = device.empty((layout.head_blocks, 2), np.float64)
        self._step_by(gradients, *self._batches[0], with_totals=True)  # chooses the library's algorithms
        ways = [gradients[:splits] for splits in layout.splits]
        own, _ = self._batches[0]
        for way in ways:
            self._update_by(way, own)
        self._gradients = ways[self.fastest(setup, [partial(self._update_by, way, own) for way in ways])]
        self._replay = {due: device.capture(lambda due=due: self._epoch(due)) for due in (False, True)}

    def kernel(self, setup: Setup, name: str, macros: tuple[tuple[str, str], ...], shared_bytes: int = 0) -> Any:
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
        subject = " ".join(map(str, (problem.batch_size, layout.features, layout.wide, layout.head_blocks)))
        chosen: int = setup.device.trials("Weight gradients of large batches").fastest(subject, ways)
        return chosen

    @classmethod
    def for_validation(cls) -> type[Launch]:
        """A captured graph of the parts that training absorbs."""
        return r6_cuda_graph.GraphEpoch

    @classmethod
    def misfit(cls, problem: Problem, steps: int) -> str:
        """Why a problem does not fit, and the closest rung; empty if it fits."""
        reason = _misfit(problem, steps)
        return f"{reason} Closest rung here: `{r6_cuda_graph.STAGE.name}`." if reason else ""

    def __call__(self, with_metrics: bool) -> None:
        """Enqueue every step of an epoch, in order."""
        self._replay[with_metrics]()

    def _epoch(self, with_totals: bool) -> None:
        """Split the weights, which may be new, then train on every batch."""
        self._enqueue_update(self._gradients, splits=0, shares=0, with_totals=False)
        for batch in self._batches:
            self._step_by(self._gradients, *batch, with_totals)

    def _step_by(self, gradients: Array, images: Array, labels: Array, with_totals: bool) -> None:
        layout, tensors = self._layout, self._tensors
        self._product(images, self._weights, self._sums, False, 1 / WEIGHT_SCALE)
        self._head(
            layout.head_blocks,
            HEAD_THREADS,
            *(self._sums, tensors.biases[0], *self._last_weights, tensors.biases[1], labels),
            *(self._dsums, self._partials, self._block_totals),
            *map(int32, (layout.problem.batch_size, layout.units, layout.problem.classes)),
            float32(layout.gradient_scale),
            int32(with_totals),
        )
        self._update_by(gradients, images, with_totals)

    def _update_by(self, gradients: Array, images: Array, with_totals: bool = False) -> None:
        """Multiply the parts of a batch to gradients (splits, features, wide), then update all parameters by them."""
        splits = len(gradients)
        left, right = (matrix.reshape(splits, -1, matrix.shape[1]) for matrix in (images, self._dsums))
        self._product(left, right, gradients, True, 1 / self._layout.gradient_scale)
        self._enqueue_update(gradients, splits, self._layout.head_blocks, with_totals)

    def _enqueue_update(self, gradients: Array, splits: int, shares: int, with_totals: bool) -> None:
        layout, tensors, problem = self._layout, self._tensors, self._layout.problem
        self._update(
            layout.update_blocks,
            UPDATE_THREADS,
            *(gradients, tensors.weights[0], self._weights, self._partials, tensors.weights[1], tensors.biases[1]),
            *(tensors.biases[0], *self._last_weights, self._block_totals, tensors.totals),
            *map(int32, (splits, layout.features, layout.width, problem.inputs, layout.units, problem.classes, shares)),
            float32(problem.learning_rate),
            int32(with_totals),
        )


def _misfit(problem: Problem, steps: int) -> str:
    """Why a problem does not fit, as a sentence; empty if it fits."""
    if len(problem.hidden) != 1:
        return f"Needs exactly one hidden layer, not {len(problem.hidden)}."
    if problem.hidden[0] > MOST_UNITS:
        return f"{problem.hidden[0]:,} hidden units exceed the limit of {MOST_UNITS}."
    if problem.classes > CLASSES:
        return f"{problem.classes} classes exceed the limit of {CLASSES}."
    if steps * problem.batch_size * up(problem.inputs, 16) > MOST_ELEMENTS:
        return f"{steps:,} steps of {problem.batch_size:,} images exceed the limit of {MOST_ELEMENTS:,} numbers."
    return ""
