"""Peer stores: one kernel writes gradients to the other GPU, awaits its, and updates.

Why: one GPU multiplies a batch of thousands, however many stand beside it. A batch divides well: images meet in the sum
of their gradients alone. But an all-reduce of NCCL in a graph takes 11 us on two H100s however small it is, and 18 us
for the 0.8 MB of 784-256-10: its kernels meet before and after the data travel.

Change: update. Each GPU has a process, all parameters and half of every batch. One kernel writes each gradient, whose
lowest bit tells its round, into the memory of the other GPU, which CUDA IPC opens. It then reads what the
other wrote to its own, until the tags are those of this round, and updates by the sums. Both GPUs compute the same
bits. Each takes all gradients of the other: between two GPUs that is no more than what a sum by halves sends, in one
trip instead of two.

Expect: 3.4 us for 1 MB inside a running kernel on two H100s, 14 us less than NCCL. With NCCL, a step of 784-256-10 at
8,192 images should take 60% of fused-head's time; 14 us less make 54%.

Predict: on H200: 784-256-10, batch 8192: 120 to 140 us.

Found: peer stores take less of a step than NCCL, but the estimate is missed, and not by the exchange: half of a batch
takes more than half of the whole one's time. A second GPU nearly doubles the speed at 32,768 images (study `two-gpus`).
`large-batch` on one GPU is faster at every recorded batch (docs/notebook/devices.md).
"""

from __future__ import annotations

from typing import Any

from common.problem import Problem
from stages.devices.rank_update import RankUpdate
from stages.engine.parts import blocks, float32, int32
from stages.engine.recipe import Gemm
from stages.engine.workspace import Setup
from stages.fusion import fused_head

FILE, THREADS, UNIT = "devices/peer_update.cu", 512, 4
BLOCKS_A_MULTIPROCESSOR = 2  # that run at once: each waits for messages of the same block on the other GPU


class PeerUpdate(RankUpdate):
    """Messages to the other rank, and the update by its messages."""

    def __init__(self, setup: Setup, gemm: Gemm) -> None:
        super().__init__(setup, gemm)
        self._units, rank, ranks = self._parameters.size // UNIT, self._group.rank, self._group.ranks
        self._macros = (("RANKS", str(ranks)),)
        self._peer_update = setup.kernel(FILE, "peer_update", macros=self._macros)
        self._blocks = min(BLOCKS_A_MULTIPROCESSOR * setup.device.multiprocessors, blocks(self._units, THREADS))
        self._box = self.mailbox()
        (self._theirs,) = self._box.others.values()
        self._scale, self._sizes = float32(self._share), (int32(self._units), int32(rank))

    @classmethod
    def misfit(cls, problem: Problem, steps: int) -> str:  # noqa: ARG003
        """Why it cannot train on so many GPUs; empty if it can."""
        return "Needs two GPUs." if problem.gpus > 2 else ""

    def mailbox(self) -> Any:
        """The mailbox of this process for a message of each parameter."""
        from common.cuda.peer_memory import mailbox  # imported late: a machine without CuPy still lists the rung

        return mailbox(self._group, type(self).__name__, self._parameters.size)

    def finish(self) -> None:
        """Enqueue the messages and the update of every parameter."""
        self.update(sends=True)

    def update(self, *, sends: bool) -> None:
        """Enqueue the update by all messages; it sends this rank's first, or they are sent."""
        boxes = self._theirs, self._box.own, self._box.rounds_of("update", self._blocks)
        tensors = self._parameters, self._gradients.flat, *boxes
        rates = self._scale, self._learning_rate
        self._peer_update(self._blocks, THREADS, *tensors, *rates, *self._sizes, int32(sends))


STAGE = fused_head.STAGE.climb(
    "ddp-peer",
    "Data parallel, peer stores",
    words="gradients go straight to the other GPU",
    group="devices",
    closest="ddp-step",
    update=PeerUpdate,
)
