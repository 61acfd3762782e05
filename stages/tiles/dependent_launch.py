"""Dependent launch: a kernel's blocks take their place before the previous kernel ends.

Why: a small step is mostly time between nodes. The GPU waits until every block has ended and its writes are flushed,
and only then starts new blocks, which fetch code and arguments: 0.86 us on an H200 for kernels of one block, 1.41 for
a block on every multiprocessor. Only the flush is needed for a correct result.

Change: launch. The kernels of a step are compiled with two more instructions and captured with CUDA's programmatic
stream serialization, which makes the edges between them programmatic. Each kernel lets the next one start at once,
and itself waits until the previous one is complete. Products of cuBLASLt keep ordinary edges on both sides.

Expect: such a node of one block takes 0.51 us, 0.35 less, in `run_ladder.py limits`. With as many blocks as products
have, it should save more, up to 0.9 of the 1.41. Softmax regression has three nodes a step: 1.0 to 2.0 us less than
the 8.6 of fused-bias. 784-256-10 has six, if none of its products is the library's: 2 to 4 us of 24.3. 784-128x3-10
with batches of 32 has twelve, all ours and small: 4 to 6 us of 34.0. Nothing where products take tens of us each.

Predict: on H200: 784-10, batch 128: 1 to 2 us less than fused-bias; 784-256-10, batch 128: 2 to 4 us less than
fused-bias; 784-128x3-10, batch 32: 4 to 6 us less than fused-bias.

Found: it gains where kernels are many and small, in 784-128x3-10, a little less than predicted. Wider networks lose,
and 784-256-10 gains on an H200 and loses on an H100, where its first product is cut into fewer tiles. Inferred, not
measured: blocks that are in place early hinder those that still compute, if a product has about as many blocks as there
are multiprocessors (docs/notebook/dependent-launch.md).
"""

from __future__ import annotations

from typing import ClassVar

from stages.classic.cuda_graph import GraphEpoch
from stages.engine.recipe import Metrics, RunStep
from stages.engine.workspace import Setup
from stages.tiles import fused_bias


class DependentEpoch(GraphEpoch):
    """A captured epoch of kernels that start early and wait for their predecessor (common/cuda/dependent_launch.py)."""

    needs: ClassVar[tuple[str, ...]] = ("cuda", "sm_90")
    are_dependents: ClassVar[bool] = True  # less than a node's time lies between kernels

    def __init__(self, setup: Setup, step: RunStep, metrics: Metrics) -> None:
        with setup.device.dependent():
            images, labels = next(iter(setup.tensors.batches))
            step(images, labels, with_totals=True)  # loads the waiting kernels before the capture
            super().__init__(setup, step, metrics)


STAGE = fused_bias.STAGE.climb(
    "dependent-launch", "Dependent launch", words="each kernel starts before the last one ends", launch=DependentEpoch
)
