"""A rung of one's own: `async` with one choice changed, its products by CuPy's `@`.

Why: `async` multiplies by a kernel of a few lines, and `cublas` by a part that picks algorithms. Most people write `@`.

Change: gemm. `@` calls cuBLAS, too, but allocates its result and lets cuBLAS pick by its own rules.

Expect: between the two. The product is cuBLAS's, and the copy into place is one kernel more for each of them.
"""

from stages.classic import r2_async_metrics
from stages.engine.recipe import Gemm
from stages.engine.workspace import Array


class CupyGemm(Gemm):
    def __call__(
        self, a: Array, b: Array, out: Array,
        *, trans_a: bool = False, trans_b: bool = False, alpha: float = 1.0, beta: float = 0.0,
    ) -> None:  # fmt: skip
        product = (a.T if trans_a else a) @ (b.T if trans_b else b)
        out[...] = product if (alpha, beta) == (1.0, 0.0) else alpha * product + (beta * out if beta else 0.0)


STAGE = r2_async_metrics.STAGE.climb("cupy-gemm", "CuPy's @", gemm=CupyGemm)
