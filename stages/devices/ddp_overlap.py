"""Overlap: a layer's gradients travel while the layers below it go backward.

Why: the 150 MB of 784-4096x3-10 travel for 400 us after the last product, as long as a quarter of the products of
4,096 images in float32's class on tensor cores. Yet all but the first layer's gradients are known earlier.

Change: update. As soon as a layer's gradient is multiplied, a kernel of few blocks on a branch of the graph sends it,
beside the products of the layers below. The last kernel receives and updates.

Expect: 784-4096x3-10 gains most of the 330 us in which its two square layers travel; in 784-256-10 it loses 3 us, for a
branch costs two nodes and the first layer has 98% of the parameters.

Predict: 784-256-10, batch 8192: 3 us more than ddp-peer.

Found: in 784-256-10 it loses far more than predicted: nothing is left to run beside the first layer's messages, and its
few blocks take longer for them than all multiprocessors. Only large batches hide that (study `two-gpus`). In a trial
784-4096x3-10 gained a third of what was expected, less than one per cent of a step.
"""

from __future__ import annotations

from common.cost import FLOAT_BYTES
from common.problem import Problem
from stages.devices import ddp_peer
from stages.devices.ddp_peer import FILE, THREADS, UNIT, PeerUpdate
from stages.engine.parts import int32
from stages.engine.recipe import Gemm
from stages.engine.workspace import Array, Setup

BRANCH, BLOCKS = 0, 32  # few blocks: products run beside them


class OverlappedUpdate(PeerUpdate):
    """Messages of each layer as soon as it has gradients, and one update at the end."""

    @classmethod
    def sends_last(cls, problem: Problem) -> int:
        """The first layer's gradients alone: the others travel beside its product."""
        first = problem.layers[0]
        return FLOAT_BYTES * first.fan_in * first.fan_out

    def __init__(self, setup: Setup, gemm: Gemm) -> None:
        super().__init__(setup, gemm)
        self._device = setup.device
        self._peer_send = setup.kernel(FILE, "peer_send", macros=self._macros)
        begins = [begin // UNIT for begin in setup.tensors.parameters.weight_begins]
        self._biases = setup.tensors.parameters.bias_begins[0] // UNIT
        self._spans = list(zip(begins, [*begins[1:], self._biases], strict=True))

    def __call__(self, layer: int, inputs: Array) -> None:
        """Enqueue one layer's gradients, and on the branch their messages; after the first layer's, all biases'."""
        super().__call__(layer, inputs)
        with self._device.beside(BRANCH):
            self._send(BLOCKS, *self._spans[layer])
            if layer == 0:
                self._send(1, self._biases, self._units)

    def finish(self) -> None:
        """Enqueue the update of every parameter by all messages."""
        self._device.join()
        self.update(sends=False)

    def _send(self, blocks: int, begin: int, end: int) -> None:
        """Enqueue the messages of the units from `begin` to `end`."""
        to = self._gradients.flat, self._theirs, self._box.rounds_of(f"units from {begin}", blocks)
        self._peer_send(blocks, THREADS, *to, self._scale, int32(begin), int32(end), *self._sizes)


STAGE = ddp_peer.STAGE.climb(
    "ddp-overlap", "Data parallel, overlapped", words="a layer's gradients travel at once", update=OverlappedUpdate
)
