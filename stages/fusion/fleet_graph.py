"""Fleet graph: each node of a captured epoch works for all of several networks.

Why: `cuda-graph` trains several networks in a row. Each has as many nodes a step as the others, about 1 us apart, and
each product of ten columns leaves most of the chip idle.

Change: launch. Parameters and outputs of all networks are stacks. A product is the library's strided batch: the images
are one matrix for all, the weights a matrix each. The other kernels have one more dimension of blocks, and bias
gradients are products with a row of ones. An epoch is captured as one graph, so a step has as many nodes as one
network's.

Expect: on an H100 in 784-10 a step of seven networks takes little more than one network's 17.6 us: 18 to 24 us.
Sixty-four take 35 to 55, since each product reads 2 MB of weights. In 784-128-128-128-10, batch 32, seven take 55 to
75, and sixty-four, whose weights no longer fit beside each other in a multiprocessor's cache, 110 to 170.

Predict: on H100: 7 of 784-10, batch 128: 18 to 24 us; 64 of 784-10, batch 128: 35 to 55 us; 7 of 784-128x3-10,
batch 32: 55 to 75 us; 64 of 784-128x3-10, batch 32: 110 to 170 us.

Found: seven networks miss their predictions by far: stacking costs softmax regression more than a whole step of one
network. The likely cause, not measured: the library splits the sum of a single small product among blocks, and of a
batch of them does not. Each further network costs little, so that sixty-four are at the upper end of their ranges, but
`jax-vmap` is faster throughout (study `fleet`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from common.problem import Problem
from common.vocabulary import Regime
from stages.classic import cuda_graph
from stages.engine.fleet import FleetLaunch
from stages.engine.parts import THREADS, blocks, int32
from stages.engine.recipe import Recipe
from stages.engine.workspace import MOST_ELEMENTS, Array, Setup


class StackedGraph(FleetLaunch):
    """An epoch of all networks, captured during preparation and replayed by one launch.

    K networks, P numbers of a network's parameter memory. Shapes: outputs (K, B, O), a layer's weights (K, I, O).
    """

    regime: ClassVar[Regime] = "graph"

    def __init__(self, setups: Sequence[Setup], recipe: Recipe) -> None:
        from common.cuda.cudnn import CudnnSoftmax  # imported late: a machine without cuDNN still lists the rung

        first, self._count = setups[0], len(setups)
        device, problem = first.device, first.problem
        self._gemm: Any = recipe.gemm(first)  # takes stacks as well
        self._parameters = first.tensors.parameters.flat.base  # (K, P)
        self._gradients = device.empty(self._parameters.shape, np.float32)
        device.zero(self._gradients)
        self._weights, self._biases = self._layers(first, self._parameters)
        self._dweights, self._dbiases = self._layers(first, self._gradients)
        shapes = [(self._count, problem.batch_size, layer.fan_out) for layer in problem.layers]
        self._outputs = [device.empty(shape, np.float32) for shape in shapes]
        self._doutputs = [device.empty(shape, np.float32) for shape in shapes]
        self._probs, self._totals = device.empty(shapes[-1], np.float32), first.tensors.totals
        rows = (self._count * problem.batch_size, problem.classes)
        self._softmax = CudnnSoftmax(device, self._outputs[-1].reshape(rows), self._probs.reshape(rows))
        self._rates = device.upload(np.array([setup.problem.learning_rate for setup in setups], np.float32))
        self._ones = self._for_all(device.upload(np.ones((1, problem.batch_size), np.float32)))
        self._add_biases, self._relu, self._relu_backward = (
            first.kernel("plain/layer.cu", name) for name in ("add_biases", "relu", "relu_backward")
        )
        self._xent_backward = first.kernel("plain/softmax.cu", "softmax_xent_backward")
        self._xent_totals = first.kernel("plain/softmax.cu", "softmax_xent_totals")
        self._sgd_updates = first.kernel("plain/sgd.cu", "sgd_updates")
        batches = [(self._for_all(images), labels) for images, labels in first.tensors.batches]
        self._step(*batches[0], with_totals=True)  # loads and tunes

        def epoch(due: bool) -> None:
            for images, labels in batches:
                self._step(images, labels, due)

        self._kept = batches  # a captured graph holds addresses, but no memory
        self._replay = {due: device.capture(lambda due=due: epoch(due)) for due in (False, True)}

    @classmethod
    def misfit(cls, problem: Problem, steps: int) -> str:  # noqa: ARG003
        """Why the networks' tensors are too large for the kernels' indices; empty if they are not."""
        widest = max(layer.fan_out * max(layer.fan_in, problem.batch_size) for layer in problem.layers)
        if problem.networks * widest <= MOST_ELEMENTS:
            return ""
        return f"{problem.networks} networks exceed the limit of {MOST_ELEMENTS:,} numbers of a layer."

    def _layers(self, first: Setup, memory: Array) -> tuple[list[Array], list[Array]]:
        """Weights (K, I, O) and biases (K, 1, O) of all layers, as views of memory (K, P)."""
        of_one, layers = first.tensors.parameters, first.problem.layers
        weights = [
            memory[:, begin : begin + layer.fan_in * layer.fan_out].reshape(-1, layer.fan_in, layer.fan_out)
            for begin, layer in zip(of_one.weight_begins, layers, strict=True)
        ]
        biases = [
            memory[:, begin : begin + layer.fan_out].reshape(-1, 1, layer.fan_out)
            for begin, layer in zip(of_one.bias_begins, layers, strict=True)
        ]
        return weights, biases

    def _for_all(self, matrix: Array) -> Array:
        """One matrix as a stack of as many as there are networks."""
        return np.broadcast_to(matrix, (self._count, *matrix.shape))

    def _step(self, images: Array, labels: Array, with_totals: bool) -> None:
        """Enqueue a step of all networks on images (K, B, I) and labels (B,)."""
        inputs = [images, *self._outputs]
        for layer, output in enumerate(self._outputs):
            rows, cols = output.shape[1:]
            self._gemm(inputs[layer], self._weights[layer], output)
            bias, stride = self._biases[layer], int32(self._parameters.shape[1])
            self._add_biases(
                (blocks(rows * cols), self._count), THREADS, output, bias, int32(rows), int32(cols), stride
            )
            if layer < len(self._outputs) - 1:
                self._relu(blocks(output.size), THREADS, output, int32(output.size))
        self._head(labels, with_totals)
        for layer in reversed(range(len(self._outputs))):
            doutput = self._doutputs[layer]
            if layer > 0:
                below, output = self._doutputs[layer - 1], self._outputs[layer - 1]
                self._gemm(doutput, self._weights[layer], below, trans_b=True)
                self._relu_backward(blocks(below.size), THREADS, below, output, int32(below.size))
            self._gemm(inputs[layer], doutput, self._dweights[layer], trans_a=True)
            self._gemm(self._ones, doutput, self._dbiases[layer])
        grid, size = (blocks(self._parameters.shape[1]), self._count), int32(self._parameters.shape[1])
        self._sgd_updates(grid, THREADS, self._parameters, self._gradients, self._rates, size)

    def _head(self, labels: Array, with_totals: bool) -> None:
        """Logits to the gradients by them; with totals, adds to the epoch's."""
        logits, dlogits = self._outputs[-1], self._doutputs[-1]
        rows, classes = logits.shape[1:]
        sizes = (int32(rows), int32(classes))
        self._softmax()
        grid = (blocks(rows * classes), self._count)
        self._xent_backward(grid, THREADS, self._probs, labels, dlogits, *sizes)
        if with_totals:
            self._xent_totals((1, self._count), THREADS, logits, labels, self._totals, *sizes)

    def __call__(self, with_metrics: bool) -> None:
        """Enqueue every step of all networks' epochs."""
        self._replay[with_metrics]()


STAGE = cuda_graph.STAGE.climb(
    "fleet-graph",
    "A graph of stacks",
    group="beyond",
    words="stacks of networks in batched products",
    launch=StackedGraph,
)
