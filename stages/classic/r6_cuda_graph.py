"""CUDA Graph capture: the host launches a whole epoch at once, as a recorded graph.

Why: in 784-10 eight launches of 4 us keep the host busy for 35 us a step, and the GPU idle for most of them. A graph is
recorded once. Its replay costs the host one launch, and the GPU about 1 us from node to node.

Change: launch. During preparation the same code that launched steps one by one runs under capture, once for epochs
without metrics and once for epochs with them.

Expect: in 784-10 the GPU is the bottleneck. Eight dependent nodes of about 1 us, and two products of 5 to 8 us that
leave most of the chip idle, make 15 to 20 us a step, two to three times faster than its parent.

Predict: on H200: 784-10, batch 128: 15 to 20 us.

Found: recorded on an H200: {784-10} us instead of {cudnn-softmax 784-10} for 784-10, {x 784-10} times as fast,
{784-256-10} instead of {cudnn-softmax 784-256-10} for 784-256-10, and {784-128x3-10} instead of {cudnn-softmax
784-128x3-10} for 784-128x3-10 in batches of 32. It was also meant to be twice as fast as PyTorch in a graph of its own,
and is not: `torch-graph` compiles the last layer as a sum and fuses it with the rest. Beside that, a step takes {to
torch-graph 784-10} for 784-10, {to torch-graph 784-256-10} for 784-256-10, {to torch-graph 784-1024-10} for
784-1024-10, {to torch-graph 784-128x3-10} for 784-128x3-10, {to torch-graph 784-784x4-10} for 784-784x4-10 and {to
torch-graph 784-4096x3-10} for 784-4096x3-10.
"""

from __future__ import annotations

from typing import ClassVar

from common.vocabulary import Regime
from stages.classic import r5_cudnn_softmax
from stages.engine.parts import OneByOne
from stages.engine.recipe import Launch, Metrics, RunStep
from stages.engine.workspace import Setup


class GraphEpoch(Launch):
    """An epoch, captured during preparation and replayed by one launch."""

    regime: ClassVar[Regime] = "graph"

    def __init__(self, setup: Setup, step: RunStep, metrics: Metrics) -> None:
        epoch = OneByOne(setup, step, metrics)
        self._replay = {due: setup.device.capture(lambda due=due: epoch(due)) for due in (False, True)}

    def __call__(self, with_metrics: bool) -> None:
        """Enqueue every step of an epoch, in order."""
        self._replay[with_metrics]()


class EpochByItself(Launch):
    """A launch that trains without the step. A forward pass is a captured graph of the parts that training absorbs."""

    @classmethod
    def for_validation(cls) -> type[Launch]:
        """The graph."""
        return GraphEpoch


STAGE = r5_cudnn_softmax.STAGE.climb("cuda-graph", "CUDA Graph capture", words="one launch an epoch", launch=GraphEpoch)
