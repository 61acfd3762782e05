"""CuPy as the array module of the float64 oracle, with products by cuBLAS and steps that replay as CUDA graphs.

CuPy refuses its own products during stream capture (cupy#6290), so that they go through `nvmath.bindings`.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Any, NamedTuple

import cupy
import numpy as np
from nvmath.bindings import cublas

WORKSPACE_BYTES = 32 << 20  # NVIDIA's recommendation for Hopper; older chips need less
CALLS_BEFORE_CAPTURE = 2  # they compile kernels and fill the memory pool; neither may happen during capture
COMPILING = Lock()  # threads that begin at once would each compile the same kernels
# Five operations of half of a control's launches. The compiler contracts no product and sum of these to an FMA.
ROUNDED = cupy.ElementwiseKernel(
    "float32 exact, float32 grid, float32 split",
    "float32 nearest",
    """
    const float scaled = __fmul_rn(exact, grid), rounded = __fmul_rn(scaled, split);
    nearest = __fdiv_rn(__fadd_rn(rounded, __fsub_rn(scaled, rounded)), grid);
    """,
    "rounded",
)


class ArrayModule:
    """All of CuPy's functions on one stream, which is current inside `with module.stream:`. For one thread."""

    def __init__(self) -> None:
        self.stream = cupy.cuda.Stream(non_blocking=True)
        self._cublas = cublas.create()
        self._workspace = cupy.empty(WORKSPACE_BYTES, np.uint8)
        cublas.set_stream(self._cublas, self.stream.ptr)
        cublas.set_workspace(self._cublas, self._workspace.data.ptr, WORKSPACE_BYTES)

    def __getattr__(self, name: str) -> Any:
        return getattr(cupy, name)

    def matmul(self, left: Any, right: Any) -> Any:
        """The product of (M, K) and (K, N), or of as many as the first of three axes has.

        To column-major cuBLAS a row-major matrix is its transpose: it computes out.T = right.T @ left.T.
        """
        *stack, rows, terms = left.shape
        columns = right.shape[-1]
        out = cupy.empty((*stack, rows, columns), left.dtype)
        first, second = _operand(right), _operand(left)
        is_double = left.dtype == np.float64
        multiply = cublas.dgemm_strided_batched if is_double else cublas.sgemm_strided_batched
        zero, one = FACTORS[is_double].ctypes.data, FACTORS[is_double][1:].ctypes.data
        sizes = (columns, rows, terms)
        result = (out.data.ptr, columns, rows * columns)
        multiply(
            *(self._cublas, first.operation, second.operation, *sizes),
            *(one, *first.at, *second.at, zero, *result, stack[0] if stack else 1),
        )
        return out

    def rounded(self, exact: Any, grid: Any, split: Any) -> Any:
        """Factors rounded as a control's `_factor` rounds them."""
        return ROUNDED(exact, grid, split)

    def repeated(self, function: Callable[..., None]) -> Callable[..., None]:
        """A function of arrays, which changes others in place, as a CUDA graph from its third call on.

        The graph replays with copies of the arrays, so that all calls have the same shapes, and nothing else may differ
        between them.
        """
        return _Repeated(function, self.stream)


FACTORS = {True: np.array([0.0, 1.0]), False: np.array([0.0, 1.0], np.float32)}  # by whether they are float64


class _Operand(NamedTuple):
    operation: int
    at: tuple[int, int, int]  # address, leading dimension, distance of stacked matrices
    kept: Any  # keeps the memory behind the address alive until the product is enqueued


def _operand(matrix: Any) -> _Operand:
    """How cuBLAS reads a matrix, or a stack: as it is, transposed, or copied if its columns are not dense either."""
    rows, columns = matrix.shape[-2:]
    *stack, across_rows, across_columns = (stride // matrix.itemsize for stride in matrix.strides)
    distance = stack[0] if stack else 0
    if across_columns == 1 and (across_rows >= columns or rows == 1):
        return _Operand(cublas.Operation.N, (matrix.data.ptr, max(across_rows, columns), distance), matrix)
    if across_rows == 1 and (across_columns >= rows or columns == 1):
        return _Operand(cublas.Operation.T, (matrix.data.ptr, max(across_columns, rows), distance), matrix)
    return _operand(cupy.ascontiguousarray(matrix))


class _Repeated:
    """See `ArrayModule.repeated`."""

    def __init__(self, function: Callable[..., None], stream: Any) -> None:
        self._function = function
        self._stream = stream
        self._pool = cupy.cuda.MemoryPool()  # of its own: a replayed graph writes to memory that is free to others
        self._calls = 0
        self._inputs: list[Any] = []
        self._graph: Any = None

    def __call__(self, *arrays: Any) -> None:
        self._calls += 1
        if self._graph is None and self._calls <= CALLS_BEFORE_CAPTURE:
            with cupy.cuda.using_allocator(self._pool.malloc), COMPILING:
                self._function(*arrays)
            return
        if self._graph is None:
            self._inputs = [cupy.empty(array.shape, array.dtype) for array in arrays]
            self._graph = self._captured()
        for copy, array in zip(self._inputs, arrays, strict=True):
            cupy.copyto(copy, array)
        self._graph.launch(self._stream)

    def _captured(self) -> Any:
        with cupy.cuda.using_allocator(self._pool.malloc):
            self._stream.begin_capture()
            try:
                self._function(*self._inputs)
            finally:
                graph = self._stream.end_capture()
        return graph
