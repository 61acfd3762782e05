"""Large batch on two GPUs: a kernel adds up both GPUs' gradients before the update.

Why: where one hidden layer trains in batches of thousands, large-batch takes a fifth of the time of the library's
float32 products, and ddp-peer loses to it. A second GPU helps it only if the gradients' way costs a few microseconds.

Change: launch. Each GPU takes its share of a batch through the kernels of large-batch. Before their last one, a kernel
adds up the parts of its own gradients, exchanges the sums with the other GPU as in ddp-peer, and leaves the sum of both
where the last kernel reads.

Expect: in 784-256-10 at 8,192 images a share of 4,096 takes 28.9 us on an H200; the exchange 2.7, as the limits say,
its kernel 1.0 to begin and 1.5 to read the parts: 34 us instead of 44.5. At 32,768 images the second GPU should gain
1.6x. An earlier version took 54 us and was wrong: its rounds were made within the graph, which made them anew in every
epoch.

Predict: on H200: 784-256-10, batch 8192: 34 us.

Found: as predicted at 8,192 images: the exchange costs what the limits promised. A second GPU gains the more, the
larger the batch: next to nothing at 4,096 images, and half as much again at 32,768 (study `two-gpus`). Each kernel has
a share of its time that half of a batch does not halve.
"""

from __future__ import annotations

from typing import Any, ClassVar

from common.cost import FLOAT_BYTES, Exchanges, parameters
from common.problem import Problem
from stages.engine.parts import blocks, float32, int32
from stages.engine.recipe import Metrics, RunStep
from stages.engine.workspace import Setup
from stages.large_batch import large_batch
from stages.large_batch.large_batch import Gradients, HalvesEpoch

FILE, THREADS, UNIT, UNITS = "devices/peer_sums.cu", 512, 4, 16


class PeerHalvesEpoch(HalvesEpoch):
    """An epoch on float16 halves whose gradients are those of two GPUs."""

    takes_gpus: ClassVar[bool] = True

    def __init__(self, setup: Setup, step: RunStep, metrics: Metrics) -> None:
        self._group = setup.device.group
        images = self._group.gather(setup.problem.batch_size)
        self._part = float32(images[self._group.rank] / sum(images))
        self._peer_sums: Any = None  # until all is chosen by timing: another rank may try another number of times
        super().__init__(setup, step, metrics)

    @classmethod
    def misfit(cls, problem: Problem, steps: int) -> str:
        """Why a problem does not fit; empty if it fits."""
        several = len(problem.hidden) > 1 or problem.gpus > 2
        return "Needs one hidden layer and two GPUs." if several else super().misfit(problem, steps)

    @classmethod
    def exchanges(cls, problem: Problem, steps: int, multiprocessors: int, block_shared_bytes: int) -> Exchanges:  # noqa: ARG003
        """All gradients' way to the other GPU."""
        return Exchanges(peer_bytes=FLOAT_BYTES * parameters(problem))

    def prepare(self, setup: Setup) -> None:
        """Prepare the kernels of one GPU, then the exchange."""
        super().prepare(setup)
        layout = self._layout
        of_share = blocks(layout.share, UNIT)
        units = of_share + layout.features * layout.width // UNIT
        self._blocks = blocks(of_share, UNITS) + blocks(units - of_share, THREADS)
        sizes = layout.features, layout.width, layout.head_blocks, layout.share, units, self._group.rank
        self._sizes = tuple(map(int32, sizes))
        self._box = self.mailbox(units * UNIT)
        self._rounds = self._box.rounds_of("sums", self._blocks)  # now: a graph would make them anew
        self._peer_sums = setup.kernel(FILE, "peer_sums", macros=(("FACTOR_HALVES", str(layout.halves)),))

    def mailbox(self, messages: int) -> Any:
        """The mailbox of this process for so many messages."""
        from common.cuda.peer_memory import mailbox  # imported late: a machine without CuPy still lists the rung

        return mailbox(self._group, type(self).__name__, messages)

    def _enqueue_update(self, gradients: Gradients, shares: int, with_totals: bool) -> None:
        first, further = gradients
        if shares and self._peer_sums is not None:
            (theirs,) = self._box.others.values()
            parts = first, self._partials, self._block_totals
            sizes = self._part, int32(len(first)), *self._sizes, int32(with_totals)
            self._peer_sums(self._blocks, THREADS, *parts, theirs, self._box.own, self._rounds, *sizes)
            first, shares = first[:1], 1
        super()._enqueue_update((first, further), shares, with_totals)


STAGE = large_batch.STAGE.climb(
    "ddp-halves",
    "Large batch on two GPUs",
    words="two GPUs' gradients before the update",
    group="devices",
    closest="ddp-peer",
    launch=PeerHalvesEpoch,
)
