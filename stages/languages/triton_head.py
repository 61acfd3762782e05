"""Triton head: `fused-head` in Triton: softmax, loss, their gradient and the totals in one kernel.

Why: many who write a kernel today write Triton, and ask what they lose. This rung is the twin of `fused-head`: same
parent, same part, another language.

Change: head. A Triton program takes some rows as one tile. The compiler spreads the tile over threads, and chooses the
reductions; blocks and warps are tried on the GPU. In epochs with metrics one program takes all rows.

Expect: 0.3 us less than `fused-head` where that takes 2.0 us. There a warp reduces a row of 10 in ten shuffles of 32
lanes. Here four threads share a row, and each reduction is three additions and two shuffles.

Predict: on H100: 784-10, batch 128: 0.3 us less than fused-head; 784-256-10, batch 128: 0.3 us less than fused-head.

Found: it is faster than `fused-head` by more than expected, and for another reason: sizes known to the compiler were
worth more than fewer shuffles. `fused-head` has learned from it since, and takes about the same time
(docs/languages.md).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import ClassVar

from common.problem import Problem
from stages.classic import cuda_graph
from stages.engine.parts import blocks
from stages.engine.recipe import Head
from stages.engine.workspace import Array, Setup
from stages.languages.triton_launch import Config, Launch, fastest, load

MOST_CLASSES = 4096  # a program holds whole rows
ROWS_AND_WARPS = ((4, 4), (4, 8), (8, 4), (8, 8), (16, 4), (16, 8), (32, 4), (32, 8))
ROWS_AND_WARPS_OF_ALL = ((32, 8), (64, 8), (64, 16), (128, 8), (128, 16), (256, 16))
MOST_NUMBERS = 1 << 14  # of a program's tile


def configs(rows: int, classes: int, with_totals: bool) -> list[Config]:
    """The configurations to try: rows that a program takes at once, and its warps."""
    width = 1 << (classes - 1).bit_length()
    shapes = ROWS_AND_WARPS_OF_ALL if with_totals else ROWS_AND_WARPS
    fit = [(high, warps) for high, warps in shapes if high * width <= MOST_NUMBERS and high < 2 * rows]
    return [
        Config((("BLOCK_ROWS", high), ("BLOCK_CLASSES", width)), warps) for high, warps in fit or [(1, shapes[0][1])]
    ]


class TritonHead(Head):
    """The whole head in one Triton kernel."""

    needs: ClassVar[tuple[str, ...]] = ("cuda", "triton")

    @classmethod
    def misfit(cls, problem: Problem, steps: int) -> str:  # noqa: ARG003
        """Rows that a program cannot hold."""
        if problem.classes > MOST_CLASSES:
            return f"Takes up to {MOST_CLASSES:,} classes, not {problem.classes:,}."
        return ""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._launches: dict[bool, Callable[[Array], None]] = {}

    def __call__(self, labels: Array, with_totals: bool) -> None:
        """Logits (B, C) to dlogits (B, C); adds to the totals when asked."""
        if not self._launches:  # both now: the next call may be part of a capture
            self._launches = {totals: self._fastest(labels, totals) for totals in (False, True)}
        self._launches[with_totals](labels)

    def _fastest(self, labels: Array, with_totals: bool) -> Callable[[Array], None]:
        """The fastest launch for these sizes. Trials change the totals, which are zeroed before every epoch."""
        rows, classes = self._setup.tensors.logits.shape
        sizes = {"ROWS": rows, "CLASSES": classes, "WITH_TOTALS": int(with_totals)}
        candidates = []
        for config in configs(rows, classes, with_totals):
            kernel = load(self._setup, "triton_softmax_xent", config, **sizes)
            candidates.append(partial(self._launch, kernel, 1 if with_totals else blocks(rows, config["BLOCK_ROWS"])))
        return candidates[
            fastest(self._setup, f"head {[*sizes.values()]}", [partial(one, labels) for one in candidates])
        ]

    def _launch(self, kernel: Launch, grid: int, labels: Array) -> None:
        tensors = self._setup.tensors
        kernel(grid, tensors.logits, labels, tensors.dlogits, tensors.totals)


STAGE = cuda_graph.STAGE.climb(
    "triton-head", "Triton head", group="languages", words="fused-head, written in Triton", head=TritonHead
)
