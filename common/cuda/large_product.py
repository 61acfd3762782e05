"""A matrix product that keeps every multiprocessor busy: cuBLASLt's rate in each precision.

The numbers are random: a GPU that multiplies zeros draws less power and runs at higher clocks than real data allow.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import cupy
import numpy as np
from numpy.typing import NDArray
from nvmath import CudaDataType
from nvmath.bindings import cublas, cublasLt

from common.cost import Precision
from common.cuda.gpu import Gpu

SIZE = 8192  # rows and columns of all three matrices
WORKSPACE_BYTES = 32 << 20  # NVIDIA's recommendation for Hopper

# Number format and compute type; sums are float32.
FORMATS: dict[Precision, tuple[Any, Any]] = {
    "float32": (CudaDataType.CUDA_R_32F, cublas.ComputeType.COMPUTE_32F),
    "tf32": (CudaDataType.CUDA_R_32F, cublas.ComputeType.COMPUTE_32F_FAST_TF32),
    "bfloat16": (CudaDataType.CUDA_R_16BF, cublas.ComputeType.COMPUTE_32F),
    "float16": (CudaDataType.CUDA_R_16F, cublas.ComputeType.COMPUTE_32F),
}


class LargeProduct:
    """out = a.T @ b, all (SIZE, SIZE) and column-major, the tensor cores' own layout.

    Raises cuBLASLt's errors, or RuntimeError, if the GPU lacks this precision.
    """

    flops = 2 * SIZE**3

    def __init__(self, gpu: Gpu, precision: Precision) -> None:
        number, compute = FORMATS[precision]
        self._gpu = gpu
        self._handle = cublasLt.create()
        self._workspace = cupy.empty(WORKSPACE_BYTES, np.uint8)
        self._a = gpu.upload(_numbers(precision))
        self._b = gpu.upload(_numbers(precision))
        self._out = cupy.empty_like(self._a)
        self._scales = (np.array(1, np.float32), np.array(0, np.float32))
        self._operation = cublasLt.matmul_desc_create(compute, CudaDataType.CUDA_R_32F)
        transpose = np.array(cublas.Operation.T, np.int32)
        attribute = cublasLt.MatmulDescAttribute.TRANSA
        cublasLt.matmul_desc_set_attribute(self._operation, attribute, transpose.ctypes.data, transpose.nbytes)
        self._layout = cublasLt.matrix_layout_create(number, SIZE, SIZE, SIZE)
        self._algorithm = self._likeliest()

    def __call__(self) -> None:
        """Enqueue the product."""
        alpha, beta = (scale.ctypes.data for scale in self._scales)
        out, layout = self._out.data.ptr, self._layout
        cublasLt.matmul(
            self._handle,
            self._operation,
            alpha,
            self._a.data.ptr,
            layout,
            self._b.data.ptr,
            layout,
            beta,
            out,
            layout,
            out,
            layout,
            self._algorithm.ctypes.data,
            self._workspace.data.ptr,
            WORKSPACE_BYTES,
            self._gpu.stream_handle,
        )

    def _likeliest(self) -> NDArray[Any]:
        """The heuristic's first choice of algorithm, which is right for products of this size."""
        preference = cublasLt.matmul_preference_create()
        room = np.array(WORKSPACE_BYTES, np.uint64)
        attribute = cublasLt.MatmulPreferenceAttribute.MAX_WORKSPACE_BYTES
        cublasLt.matmul_preference_set_attribute(preference, attribute, room.ctypes.data, room.nbytes)
        results = np.zeros(1, cublasLt.matmul_heuristic_result_dtype)
        count = np.zeros(1, np.int32)
        layouts = (self._layout,) * 4
        answer = (1, results.ctypes.data, count.ctypes.data)
        cublasLt.matmul_algo_get_heuristic(self._handle, self._operation, *layouts, preference, *answer)
        cublasLt.matmul_preference_destroy(preference)
        if count[0] == 0 or results["state"][0] != 0:
            raise RuntimeError("cuBLASLt has no algorithm for this product")
        algorithm: NDArray[Any] = results["algo"].reshape(-1)
        return algorithm


def _numbers(precision: Precision) -> NDArray[Any]:
    """Normally distributed numbers (SIZE, SIZE) in the precision's format; bfloat16 as 16-bit integers."""
    numbers = _normal()
    if precision == "float16":
        return numbers.astype(np.float16)
    if precision == "bfloat16":
        return (numbers.view(np.uint32) >> 16).astype(np.uint16)
    return numbers


@cache
def _normal() -> NDArray[np.float32]:
    """Cached: drawing takes a second."""
    return np.random.default_rng(0).standard_normal((SIZE, SIZE), np.float32)
