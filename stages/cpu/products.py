"""Products on the CPU: loops, BLAS, and BLAS with tiles of our own for few columns."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np

from common.blas import limit_blas_threads
from stages.engine.recipe import Gemm
from stages.engine.workspace import Array, Setup

FEW_COLUMNS = 16  # of a product that tiles compute
TILE_IMAGES = 8


class Product(NamedTuple):
    """out (m, n) = alpha * op(a) @ op(b) + beta * out."""

    a: Array
    b: Array
    out: Array
    trans_a: bool
    trans_b: bool
    alpha: float
    beta: float

    @property
    def left(self) -> Array:
        """op(a)."""
        return self.a.T if self.trans_a else self.a

    @property
    def right(self) -> Array:
        """op(b)."""
        return self.b.T if self.trans_b else self.b


class PreparedGemm(Gemm):
    """Prepares a call once for each product of a step and each batch."""

    needs: ClassVar[tuple[str, ...]] = ()

    def __init__(self) -> None:
        self._prepared: dict[Any, tuple[Callable[[], None], Product]] = {}

    def __call__(
        self,
        a: Array,
        b: Array,
        out: Array,
        *,
        trans_a: bool = False,
        trans_b: bool = False,
        alpha: float = 1.0,
        beta: float = 0.0,
    ) -> None:
        """Out (m, n) = alpha * op(a) @ op(b) + beta * out."""
        key = (id(a), id(b), id(out), trans_a, trans_b, alpha, beta)
        prepared = self._prepared.get(key)
        if prepared is None:  # kept with its arrays, whose ids no others may get
            product = Product(a, b, out, trans_a, trans_b, alpha, beta)
            prepared = self._prepared[key] = self._prepare(product), product
        prepared[0]()

    @abstractmethod
    def _prepare(self, product: Product) -> Callable[[], None]:
        """The call that computes this product."""


class LoopGemm(PreparedGemm):
    """One scalar loop nest."""

    def __init__(self, setup: Setup) -> None:
        super().__init__()
        self._product = setup.device.kernel("", "product")

    def _prepare(self, product: Product) -> Callable[[], None]:
        left, right, out = product.left, product.right, product.out
        placed = [part for array in (left, right, out) for part in (array, *strides(array))]
        return partial(self._product.run, *placed, *out.shape, left.shape[1], float(product.alpha), float(product.beta))


def strides(array: Array) -> tuple[int, int]:
    """From row to row and from column to column, in numbers."""
    rows, columns = array.strides
    return rows // array.itemsize, columns // array.itemsize


class BlasGemm(PreparedGemm):
    """SciPy's BLAS on one thread, called without Python's wrapper."""

    def __init__(self, setup: Setup) -> None:
        from numba.extending import get_cython_function_address

        super().__init__()
        self._sgemm: int = get_cython_function_address("scipy.linalg.cython_blas", "sgemm")
        limit_blas_threads(1)  # of the library that the line above has loaded
        self._kernel = setup.device.kernel("", "blas_product")

    def _prepare(self, product: Product) -> Callable[[], None]:
        numbers = sgemm_arguments(product.left, product.right, product.out, product.alpha, product.beta)
        addresses = np.array([number.ctypes.data for number in numbers], np.int64)
        return partial(self._kernel.run, self._sgemm, addresses, keep=numbers)


def sgemm_arguments(left: Array, right: Array, out: Array, alpha: float, beta: float) -> list[Array]:
    """The thirteen arguments of Fortran's sgemm for out = alpha * left @ right + beta * out.

    Fortran keeps columns together. An `out` that keeps rows together is computed as its transpose.
    """
    if out.strides[1] == out.itemsize:
        left, right, out = right.T, left.T, out.T
    (flag_a, ld_a), (flag_b, ld_b) = _placed(left), _placed(right)
    m, n, k = out.shape[0], out.shape[1], left.shape[1]
    ld_out = max(m, out.strides[1] // out.itemsize)  # a single column may have any stride, and sgemm takes none below m
    whole = [np.array([size], np.int32) for size in (m, n, k, ld_a, ld_b, ld_out)]
    flags = [np.frombuffer(flag, np.uint8) for flag in (flag_a, flag_b)]
    factors = [np.array([factor], np.float32) for factor in (alpha, beta)]
    return [*flags, *whole[:3], factors[0], left, whole[3], right, whole[4], factors[1], out, whole[5]]


def _placed(array: Array) -> tuple[bytes, int]:
    """Whether Fortran must transpose an array, and the numbers from one column or row to the next."""
    rows, columns = strides(array)
    return (b"N", max(columns, array.shape[0])) if rows == 1 else (b"T", max(rows, array.shape[1]))


class TileGemm(BlasGemm):
    """Tiles for products with few columns, BLAS for all others; where tiles compute, `a` may be bytes of 256ths."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        kernel = setup.device.kernel
        self._forward = {np.float32: kernel("", "rows_by_columns"), np.uint8: kernel("", "rows_by_columns_u8")}
        self._update = {np.float32: kernel("", "add_outer"), np.uint8: kernel("", "add_outer_u8")}
        self._spread = kernel("", "spread")
        self._bias_update = kernel("", "bias_update")
        self._empty = setup.device.empty

    def _prepare(self, product: Product) -> Callable[[], None]:
        kernel, arguments = self._tile(product)
        return super()._prepare(product) if kernel is None else partial(kernel.run, *arguments)

    def update_bias(self, bias: Array, doutput: Array, rate: float) -> None:
        """Bias (O,) -= rate * doutput (B, O) summed over the batch."""
        self._bias_update.run(doutput, bias, float(rate), *doutput.shape)

    def _tile(self, product: Product) -> tuple[Any, Any]:
        """A kernel with its arguments; None for a product that BLAS computes."""
        a, b, out, trans_a, trans_b, alpha, beta = product
        images, pixels = a.shape
        columns = b.shape[1] if not trans_b else a.shape[1]
        if columns > FEW_COLUMNS:
            return None, None
        if trans_a and beta == 1.0 and b.flags.c_contiguous:
            scratch = self._empty((TILE_IMAGES + columns, pixels), np.float32)
            sizes = (images, columns, pixels, float(alpha))
            return self._update[a.dtype.type], (a, strides(a)[0], b, out, strides(out)[1], scratch, *sizes)
        if trans_a:
            return None, None
        if trans_b:  # doutput (B, O) @ weights (I, O).T
            return self._spread, (a, b, strides(b)[1], out, images, columns, out.shape[1])
        return self._forward[a.dtype.type], (a, strides(a)[0], b, strides(b)[1], out, images, columns, pixels)
