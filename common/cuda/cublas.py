"""cuBLAS on row-major matrices, with a handle and a workspace of its own.

Through `nvmath.bindings`, since CuPy refuses to use cuBLAS while a graph is captured (cupy#6290), and a workspace that
cuBLAS allocates by itself could not be captured either.
"""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np
from nvmath.bindings import cublas

from common.cuda.gpu import Gpu

WORKSPACE_BYTES = 32 << 20  # what NVIDIA recommends for Hopper; older chips are content with less


class Cublas:
    """A cuBLAS handle on a GPU's stream, in plain float32: TF32 stays off."""

    def __init__(self, gpu: Gpu) -> None:
        self._workspace = cupy.empty(WORKSPACE_BYTES, np.uint8)
        self._handle = cublas.create()
        cublas.set_stream(self._handle, gpu.stream_handle)
        cublas.set_workspace(self._handle, self._workspace.data.ptr, WORKSPACE_BYTES)
        cublas.set_math_mode(self._handle, cublas.Math.DEFAULT_MATH)
        self._scalars: dict[float, tuple[Any, int]] = {}

    def sgemm(self, a: Any, b: Any, out: Any, trans_a: bool, trans_b: bool, alpha: float, beta: float) -> None:
        """Enqueue out (m, n) = alpha * op(a) @ op(b) + beta * out, float32.

        cuBLAS thinks in columns, and a row-major matrix is its own transpose there: so it is asked for
        out.T = op(b).T @ op(a).T.
        """
        m, n = out.shape
        k = a.shape[0] if trans_a else a.shape[1]
        cublas.sgemm(
            self._handle,
            trans_b,
            trans_a,
            n,
            m,
            k,
            self._scalar(alpha),
            b.data.ptr,
            b.shape[1],
            a.data.ptr,
            a.shape[1],
            self._scalar(beta),
            out.data.ptr,
            n,
        )

    def _scalar(self, value: float) -> int:
        """The address of a float32 on the host, which is how cuBLAS takes alpha and beta; kept alive here."""
        if value not in self._scalars:
            scalar = np.array(value, np.float32)
            self._scalars[value] = (scalar, scalar.ctypes.data)
        return self._scalars[value][1]
