"""Data parallel: each GPU has a share of a batch, and NCCL adds up their gradients.

Why: one GPU multiplies a batch of thousands, however many stand beside it. A batch divides well: images meet in the sum
of their gradients alone.

Change: update. Each GPU has a process, all parameters and half of every batch. The gradients lie in one array, which
NCCL adds up over all GPUs, by one all-reduce in the captured graph. Then every GPU makes the same update. CuPy binds
NCCL: it is here already, and its calls take a stream to capture.

Expect: on two H100s an all-reduce in a graph takes 18 us for the 0.8 MB of 784-256-10 and 450 us for the 150 MB of
784-4096x3-10. So 784-256-10 takes 60% of fused-head's time in batches of 8,192 and 52% of it at 65,536;
784-4096x3-10 takes 53 and 51%.

Predict: 784-256-10, batch 8192: 1.6 to 1.7 x of fused-head.

Found: it gains less than predicted: half of a batch takes more than half of the whole one's time, and the all-reduce
comes on top. At 32,768 images a second GPU nearly doubles the speed (study `two-gpus`). In trials 1,024 images gain
nothing and 128 lose, and `large-batch` on one GPU is faster throughout.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from stages.devices.rank_update import RankUpdate
from stages.engine.parts import THREADS, blocks, float32, int32
from stages.engine.recipe import Gemm
from stages.engine.workspace import Setup
from stages.fusion import fused_head


class NcclUpdate(RankUpdate):
    """One all-reduce of all gradients, then the update."""

    needs: ClassVar[tuple[str, ...]] = ("cuda", "nccl")

    def __init__(self, setup: Setup, gemm: Gemm) -> None:
        super().__init__(setup, gemm)
        self._device = setup.device
        from common.cuda.nccl import all_reduce  # imported late: a machine without NCCL still lists the rung

        self._all_reduce = all_reduce(self._group)
        ranks, mine = self._group.ranks, self._share
        self._scale = None if ranks * mine == 1.0 else np.float32(ranks * mine)
        self._learning_rate = float32(setup.problem.learning_rate / ranks)

    def finish(self) -> None:
        """Enqueue the sum over all ranks and the update of every parameter."""
        gradients, size = self._gradients.flat, self._parameters.size
        if self._scale is not None:
            gradients *= self._scale
        self._all_reduce(gradients.data.ptr, size, self._device.stream_handle)
        self._sgd_update(blocks(size), THREADS, self._parameters, gradients, self._learning_rate, int32(size))


STAGE = fused_head.STAGE.climb(
    "ddp-step", "Data parallel, NCCL", words="NCCL adds up gradients of all GPUs", group="devices", update=NcclUpdate
)
