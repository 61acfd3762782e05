"""CuTe head: `fused-head` in CuTe DSL: softmax, loss, their gradient and the totals in one kernel.

Why: CuTe DSL is NVIDIA's Python for CUTLASS. It has the threads of CUDA C++, and compiles in less than a second. This
rung is the twin of `fused-head` and `triton-head`: same parent, same part, another language.

Change: head. The kernel is `fused-head`'s, statement by statement: eight lanes take a row of ten, and shuffles find its
largest logit and its sum. The number of rows is known to the compiler too.

Expect: the time of `fused-head`, since both say which thread does what.

Predict: on H200: 784-10, batch 128: 1 x of fused-head; 784-256-10, batch 128: 1 x of fused-head.

Found: it is a little faster than `fused-head`, where the same time was expected. A Python list of a thread's numbers is
unrolled into registers, where our loops read each logit and compute each power twice. So the form of the code won, and
the language offers it for nothing (docs/languages.md).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from common.cuda.cute_code import CuteCode, compile_cute
from stages.classic import cuda_graph
from stages.engine.parts import blocks
from stages.engine.recipe import Head
from stages.engine.workspace import Array, Setup
from stages.fusion.head_kernel import MOST_THREADS, THREADS, WARP, lanes

SOURCE = Path(__file__).with_name("cute_kernels.py")
SHARED_BYTES = 1024  # of the block that adds up totals, at most


def head_code(rows: int, classes: int, threads: int, with_totals: bool, capability: int) -> CuteCode:
    """The kernel for logits (rows, classes)."""
    constants = {"LANES": lanes(classes), "THREADS": threads, "WITH_TOTALS": with_totals}

    def load() -> tuple[Any, tuple[Any, ...]]:
        from stages.languages import cute_kernels  # late: a machine without CuTe DSL still lists the rung

        return cute_kernels.head, (*cute_kernels.head_arguments(rows, classes), *constants.values())

    return compile_cute(load, SOURCE, {**constants, "rows": rows, "classes": classes}, capability)


class CuteHead(Head):
    """The whole head in one kernel of CuTe DSL."""

    needs: ClassVar[tuple[str, ...]] = ("cuda", "cute")

    def __init__(self, setup: Setup) -> None:
        self._tensors = setup.tensors
        rows, classes = setup.tensors.logits.shape
        every = blocks(rows * lanes(classes), WARP) * WARP
        self._launches = {}
        for with_totals, threads in ((False, THREADS), (True, min(every, MOST_THREADS))):
            code = head_code(rows, classes, threads, with_totals, setup.device.capability)
            kernel = setup.device.loaded(code.cubin, code.name, SHARED_BYTES if with_totals else 0)
            self._launches[with_totals] = kernel, 1 if with_totals else blocks(every, threads), threads

    def __call__(self, labels: Array, with_totals: bool) -> None:
        """Logits (B, C) to dlogits (B, C); adds to the totals when asked."""
        kernel, grid, threads = self._launches[with_totals]
        kernel(grid, threads, self._tensors.logits, labels, self._tensors.dlogits, self._tensors.totals)


STAGE = cuda_graph.STAGE.climb(
    "cute-head", "CuTe head", group="languages", words="fused-head, written in CuTe DSL", head=CuteHead
)
