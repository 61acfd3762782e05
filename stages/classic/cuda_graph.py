"""CUDA Graph capture: the host launches a whole epoch at once, as a recorded graph.

Why: in 784-10 eight launches of 4 us keep the host busy for 35 us per step, and the GPU idle for most of them. A graph
is recorded once. Its replay costs the host one launch, and the GPU about 1 us from node to node.

Change: launch. During preparation the same code that launched steps one by one runs under capture, once for epochs
without metrics and once for epochs with them.

Expect: in 784-10 the GPU is the bottleneck. Eight dependent nodes of about 1 us, and two products of 5 to 8 us that
leave most of the chip idle, make 15 to 20 us per step, two to three times faster than its parent.

Predict: on H200: 784-10, batch 128: 15 to 20 us.

Found: a step is about four times as fast, more than expected, since the host had been slower than estimated. Kernels
now take nearly all of it, and as many empty ones would take a third or more of 784-10. `torch-graph` is still faster in
all six recorded networks: it compiles the narrow last layer as a sum and fuses it with its neighbours, which counts
less as products grow.
"""

from __future__ import annotations

from typing import ClassVar

from common.vocabulary import Regime
from stages.classic import cudnn_softmax
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

    writes_parameters: ClassVar[bool] = True

    @classmethod
    def for_validation(cls) -> type[Launch]:
        """The graph."""
        return GraphEpoch


STAGE = cudnn_softmax.STAGE.climb("cuda-graph", "CUDA Graph capture", words="one launch per epoch", launch=GraphEpoch)
