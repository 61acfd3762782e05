"""6. Write the product: a kernel of your own in place of BLAS.

It is right for rows that lie one after the other. The backward pass has others: make it right for every layout.

Why: (what does BLAS do for ten columns that your loops need not do?)

Change: (the one choice that you change)

Expect: (microseconds a step beside cpu-blas and cpu-loops, written before you measure, and why)

Found: (the measured times: hit or missed; then change the order of your loops, and say what that did)
"""

# mypy: disable-error-code="no-untyped-def"
from typing import Any

from stages import Array, Gemm, Setup, rung
from stages.cpu_kernel import Kernel, floats, kernel


@kernel("any")
def product(row):
    """Row: a, b, out, m, n, k; then the way of a, b and out from row to row and from column to column, in numbers."""
    m, n, k = row[3], row[4], row[5]
    a, b, out = floats(row[0], m * k), floats(row[1], k * n), floats(row[2], m * n)
    for i in range(m):
        for j in range(n):
            total = 0.0
            for at in range(k):
                total += a[i * k + at] * b[at * n + j]
            out[i * n + j] = total


class MyGemm(Gemm):
    needs = ()

    def __init__(self, setup: Setup) -> None:
        self.kernel, self.calls = Kernel(product, setup.device), dict[Any, Any]()

    def __call__(
        self, a: Array, b: Array, out: Array, *, trans_a: bool = False, trans_b: bool = False, **_: float
    ) -> None:
        """Out (m, n) = op(a) (m, k) @ op(b) (k, n); this rung scales no product, and adds none to what is there."""
        key = (id(a), id(b), id(out), trans_a, trans_b)
        if key not in self.calls:
            left, right = a.T if trans_a else a, b.T if trans_b else b
            ways = [stride // array.itemsize for array in (left, right, out) for stride in array.strides]
            self.calls[key] = (a, b, out, *out.shape, left.shape[1], *ways)
        self.kernel(1, 1, *self.calls[key])


STAGE = rung("cpu-blas").climb("write-the-product", "Write the product", gemm=MyGemm)
