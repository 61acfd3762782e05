"""A matrix product large enough to keep every multiprocessor busy: what cuBLASLt reaches in each precision.

On random numbers, since a GPU that multiplies zeros draws less power, and then runs at higher clocks than real data
would let it.
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
WORKSPACE_BYTES = 32 << 20  # what NVIDIA recommends for Hopper

# What is multiplied and how; the sums are float32 in all of them.
FORMATS: dict[Precision, tuple[Any, Any]] = {
    "float32": (CudaDataType.CUDA_R_32F, cublas.ComputeType.COMPUTE_32F),
    "tf32": (CudaDataType.CUDA_R_32F, cublas.ComputeType.COMPUTE_32F_FAST_TF32),
    "bfloat16": (CudaDataType.CUDA_R_16BF, cublas.ComputeType.COMPUTE_32F),
    "float16": (CudaDataType.CUDA_R_16F, cublas.ComputeType.COMPUTE_32F),
}


class LargeProduct:
    """out = a.T @ b, all (SIZE, SIZE) and column-major: the layout that tensor cores read as it is.

    Raises what cuBLASLt raises, or RuntimeError, where the GPU cannot multiply in this precision.
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
        """The algorithm that cuBLASLt thinks the fastest, on which it is right for products of this size."""
        preference = cublasLt.matmul_preference_create()
        room = np.array(WORKSPACE_BYTES, np.uint64)
        attribute = cublasLt.MatmulPreferenceAttribute.MAX_WORKSPACE_BYTES
        cublasLt.matmul_preference_set_attribute(preference, attribute, room.ctypes.data, room.nbytes)
        found = np.zeros(1, cublasLt.matmul_heuristic_result_dtype)
        count = np.zeros(1, np.int32)
        layouts = (self._layout,) * 4
        answer = (1, found.ctypes.data, count.ctypes.data)
        cublasLt.matmul_algo_get_heuristic(self._handle, self._operation, *layouts, preference, *answer)
        cublasLt.matmul_preference_destroy(preference)
        if count[0] == 0 or found["state"][0] != 0:
            raise RuntimeError("cuBLASLt has no algorithm for this product")
        algorithm: NDArray[Any] = found["algo"].reshape(-1)
        return algorithm


def _numbers(precision: Precision) -> NDArray[Any]:
    """Normal numbers (SIZE, SIZE) in the precision's own format; bfloat16, which NumPy lacks, as 16-bit integers."""
    numbers = _normal()
    if precision == "float16":
        return numbers.astype(np.float16)
    if precision == "bfloat16":
        return (numbers.view(np.uint32) >> 16).astype(np.uint16)
    return numbers


@cache
def _normal() -> NDArray[np.float32]:
    """Drawn once, since it takes a second."""
    return np.random.default_rng(0).standard_normal((SIZE, SIZE), np.float32)
