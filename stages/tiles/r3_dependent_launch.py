"""Dependent launch: a kernel's blocks are in place before the kernel in front of it has ended.

Why: what is left of a small step is nodes. From one to the next the GPU waits until every block has ended and what
they wrote is flushed, and only then hands out blocks, which fetch their code and arguments: 0.86 us on an H200 for
kernels of one block, 1.41 for a block on every multiprocessor. Only the flush has to do with what they compute.

Change: launch. The kernels of a step are compiled with two instructions more and captured with CUDA's programmatic
stream serialization, which makes the edges between them programmatic: each lets the next one start at once, and waits
itself until the one before is complete. Products of cuBLASLt keep ordinary edges on both sides.

Expect: such a node of one block takes 0.51 us, 0.35 less, in `run_ladder.py limits`; with as many blocks as products
have it should save more, up to 0.9 of the 1.41. Softmax regression has three nodes a step: 1.0 to 2.0 us less than the
8.6 of fused-bias. 784-256-10 has six, if none of its products is the library's: 2 to 4 us of 24.3. 784-128x3-10 with
batches of 32 has twelve, all ours and small: 4 to 6 us of 34.0. Nothing where products take tens of us each.

Found: 0.3 us less on an H200 for softmax regression, 8.44, and slower with a hidden layer: 26.5 us instead of 23.1 for
784-256-10, 40.9 instead of 34.9 for 784-1024-10. It seems that blocks which are in place early hinder those that still
compute; docs/notes.md has what could be tried.
"""

from __future__ import annotations

from typing import ClassVar

from stages.classic.r6_cuda_graph import GraphEpoch
from stages.engine.recipe import Metrics, RunStep
from stages.engine.workspace import Setup
from stages.tiles import r2_fused_bias


class DependentEpoch(GraphEpoch):
    """A captured epoch whose kernels start early and wait by themselves."""

    needs: ClassVar[tuple[str, ...]] = ("cuda", "sm_90")
    are_dependents: ClassVar[bool] = True  # its kernels, so that less than a node lies between them

    def __init__(self, setup: Setup, step: RunStep, metrics: Metrics) -> None:
        with setup.device.dependent():
            images, labels = next(iter(setup.tensors.batches))
            step(images, labels, with_totals=True)  # loads the kernels that wait, outside of any capture
            super().__init__(setup, step, metrics)


STAGE = r2_fused_bias.STAGE.climb("dependent-launch", "Dependent launch", launch=DependentEpoch)
