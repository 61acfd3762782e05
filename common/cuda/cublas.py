"""Products of row-major matrices by cuBLASLt, each with the algorithm that measured fastest.

cuBLAS picks an algorithm by a heuristic. For products of 10 columns or 32 rows its choice is up to twice slower than
its best algorithm. cuBLASLt offers the same kernels as a list of candidates. They are timed on the first call with a
shape, and the choice is kept on disk. The calls go through `nvmath.bindings`, since CuPy refuses cuBLAS during stream
capture (cupy#6290).
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import cupy
import numpy as np
from nvmath import CudaDataType
from nvmath.bindings import cublas, cublasLt

from common.cuda.autotune import Trials
from common.cuda.epilogue import Fusion
from common.cuda.gpu import Gpu
from common.cuda.step_memory import Tensor

WORKSPACE_BYTES = 32 << 20  # NVIDIA's recommendation for Hopper; older chips need less
CANDIDATES = 24
ALIGNMENT = 256  # bytes, of CUDA's allocations

Key = tuple[tuple[int, ...], tuple[int, ...], bool, bool, float, float, Fusion | None, str]
"""Shapes of a and b, trans_a, trans_b, alpha, beta, fusion, formats of b, a and out, and of several how far apart."""

FORMATS = {"f": CudaDataType.CUDA_R_32F, "e": CudaDataType.CUDA_R_16F}  # by NumPy's character

COMPUTE = {
    "float32": cublas.ComputeType.COMPUTE_32F,
    "tf32": cublas.ComputeType.COMPUTE_32F_FAST_TF32,
    "bfloat16": cublas.ComputeType.COMPUTE_32F_FAST_16BF,
    "float16": cublas.ComputeType.COMPUTE_32F_FAST_16F,
}

# cuBLASLt stores ReLU's mask as its auxiliary output.
EPILOGUES = {
    "bias": cublasLt.Epilogue.BIAS,
    "relu": cublasLt.Epilogue.RELU_AUX,
    "relu_bias": cublasLt.Epilogue.RELU_AUX_BIAS,
    "relu_backward": cublasLt.Epilogue.DRELU,
}


@dataclass(frozen=True)
class Plan:
    """One product of given shapes: its cuBLASLt descriptors and chosen algorithm.

    All fields are the addresses and handles of the call, so that a call computes nothing known before.
    """

    operation: int
    layouts: tuple[int, int, int]
    alpha: int
    beta: int
    algorithm: int
    kept: tuple[Any, ...]  # keeps the host memory behind the addresses alive


class Matmul:
    """out (m, n) = alpha * op(a) @ op(b) + beta * out, then the fusion, if any.

    Matrices are float32, or factors float16; three-dimensional arrays are as many products as their first dimension,
    along which they may be strided; then beta must be 0.
    cuBLASLt may round float32 factors to the precision `factors`; sums are float32. All algorithms are deterministic:
    none adds in the order of arrival.
    """

    def __init__(self, gpu: Gpu, factors: str = "float32") -> None:
        self._compute = COMPUTE[factors]
        rounded = "" if factors == "float32" else f" in {factors}"
        self.version: int = cublasLt.get_version()
        self._trials = Trials(gpu, f"cuBLASLt {self.version}{rounded} on {gpu.name}")
        self._gpu = gpu
        self._handle = cublasLt.create()
        self._workspaces: dict[int, Any] = {}  # by stream: products on several streams may overlap
        self._plans: dict[Key, Plan] = {}

    def __call__(
        self,
        a: Any,
        b: Any,
        out: Any,
        trans_a: bool,
        trans_b: bool,
        alpha: float,
        beta: float,
        fusion: Fusion | None = None,
    ) -> None:
        """Enqueue the product; the first call with a shape times the algorithms."""
        formats = b.dtype.char + a.dtype.char + out.dtype.char
        if len(out.shape) > 2:
            formats += f" {[_apart(matrix) for matrix in (b, a, out)]}"
        key = (a.shape, b.shape, trans_a, trans_b, alpha, beta, fusion, formats)
        plan = self._plans.get(key)
        if plan is None:
            plan = self._plans[key] = self._choose(a, b, out, key)
        self._launch(plan, a, b, out)

    def _launch(self, plan: Plan, a: Any, b: Any, out: Any) -> None:
        first, second, result = plan.layouts
        stream = self._gpu.stream_handle
        workspace = self._workspaces.get(stream)
        if workspace is None:
            workspace = self._workspaces[stream] = cupy.empty(WORKSPACE_BYTES, np.uint8)
        target = out.data.ptr
        cublasLt.matmul(
            self._handle,
            plan.operation,
            plan.alpha,
            b.data.ptr,
            first,
            a.data.ptr,
            second,
            plan.beta,
            target,
            result,
            target,
            result,
            plan.algorithm,
            workspace.data.ptr,
            WORKSPACE_BYTES,
            stream,
        )

    def _choose(self, a: Any, b: Any, out: Any, key: Key) -> Plan:
        """Time the candidates and return the fastest one's plan.

        To column-major cuBLASLt a row-major matrix is its transpose: it computes out.T = op(b).T @ op(a).T. Its bias
        runs along a column, which is our row.
        """
        _, _, trans_a, trans_b, alpha, beta, fusion, formats = key
        operation = cublasLt.matmul_desc_create(self._compute, CudaDataType.CUDA_R_32F)
        attributes = cublasLt.MatmulDescAttribute
        settings = [
            (attribute, np.array(cublas.Operation.T if transpose else cublas.Operation.N, np.int32))
            for attribute, transpose in ((attributes.TRANSA, trans_b), (attributes.TRANSB, trans_a))
        ]
        for attribute, value in [*settings, *_epilogue(fusion)]:
            cublasLt.matmul_desc_set_attribute(operation, attribute, value.ctypes.data, value.nbytes)
        layouts = (_layout(b), _layout(a), _layout(out))
        plans = []
        for algorithm in self._candidates(operation, layouts, (b, a, out)):
            kept = (np.array(alpha, np.float32), np.array(beta, np.float32), algorithm)
            alpha_at, beta_at, algorithm_at = (value.ctypes.data for value in kept)
            plans.append(Plan(operation, layouts, alpha_at, beta_at, algorithm_at, kept))
        purpose = repr(key[:-2]) + (f" {fusion.kind}" if fusion else "") + (f" {formats}" if formats != "fff" else "")
        scratch = cupy.zeros(out.shape, out.dtype) if beta else out  # with beta, a trial would change out
        return plans[self._trials.fastest(purpose, [partial(self._launch, plan, a, b, scratch) for plan in plans])]

    def _candidates(self, operation: int, layouts: tuple[int, ...], matrices: tuple[Any, ...]) -> list[Any]:
        """Algorithms for these layouts, cuBLASLt's favourite first; RuntimeError without any."""
        preference = cublasLt.matmul_preference_create()
        names = cublasLt.MatmulPreferenceAttribute
        schemes = cublasLt.ReductionScheme
        preferences: list[tuple[Any, Any]] = [
            (names.MAX_WORKSPACE_BYTES, np.array(WORKSPACE_BYTES, np.uint64)),
            (names.REDUCTION_SCHEME_MASK, np.array(schemes.COMPUTE_TYPE | schemes.OUTPUT_TYPE, np.uint32)),
        ]
        alignments = (names.MIN_ALIGNMENT_A_BYTES, names.MIN_ALIGNMENT_B_BYTES, names.MIN_ALIGNMENT_C_BYTES)
        preferences += [(name, _alignment(matrix)) for name, matrix in zip(alignments, matrices, strict=True)]
        preferences.append((names.MIN_ALIGNMENT_D_BYTES, _alignment(matrices[-1])))
        for name, value in preferences:
            cublasLt.matmul_preference_set_attribute(preference, name, value.ctypes.data, value.nbytes)
        results = np.zeros(CANDIDATES, cublasLt.matmul_heuristic_result_dtype)
        count = np.zeros(1, np.int32)
        problem = (layouts[0], layouts[1], layouts[2], layouts[2])
        output = (CANDIDATES, results.ctypes.data, count.ctypes.data)
        with suppress(cublasLt.cuBLASLtError):  # raised when there is no algorithm
            cublasLt.matmul_algo_get_heuristic(self._handle, operation, *problem, preference, *output)
        cublasLt.matmul_preference_destroy(preference)
        results = results[: count[0]]
        usable = list(results["algo"][results["state"] == 0].reshape(-1, 1))
        if not usable:
            raise RuntimeError("cuBLASLt has no algorithm for this product")
        return usable


def _epilogue(fusion: Fusion | None) -> list[tuple[Any, Any]]:
    """Descriptor attributes and values of a fusion."""
    if fusion is None:
        return []
    attributes = cublasLt.MatmulDescAttribute
    settings = [(attributes.EPILOGUE, np.array(EPILOGUES[fusion.kind], np.uint32))]
    if fusion.bias is not None:
        settings.append((attributes.BIAS_POINTER, np.array(fusion.bias.data.ptr, np.int64)))
    if fusion.mask is not None:
        settings.append((attributes.EPILOGUE_AUX_POINTER, np.array(fusion.mask.data.ptr, np.int64)))
        settings.append((attributes.EPILOGUE_AUX_LD, np.array(8 * fusion.mask.shape[1], np.int64)))  # in bits
    return settings


def _layout(matrix: Tensor | Any) -> int:
    """Layout of a row-major (rows, cols) matrix, or of several: cols by rows in cuBLASLt, columns dense."""
    *several, rows, cols = matrix.shape
    layout: int = cublasLt.matrix_layout_create(FORMATS[matrix.dtype.char], cols, rows, cols)
    names = cublasLt.MatrixLayoutAttribute
    for count in several:
        for name, value in (
            (names.BATCH_COUNT, np.array(count, np.int32)),
            (names.STRIDED_BATCH_OFFSET, np.array(_apart(matrix), np.int64)),
        ):
            cublasLt.matrix_layout_set_attribute(layout, name, value.ctypes.data, value.nbytes)
    return layout


def _apart(matrices: Any) -> int:
    """Elements from one of several matrices to the next; 0 if all are the same."""
    apart: int = matrices.strides[0] // matrices.dtype.itemsize
    return apart


def _alignment(matrix: Tensor | Any) -> Any:
    """The largest power of two in bytes that divides the address of every batch of an epoch.

    Batches are contiguous, and so are the matrices of several products, so their size decides.
    """
    *several, _, _ = matrix.shape
    size = matrix.nbytes // math.prod(several)
    return np.array(min(ALIGNMENT, size & -size), np.uint32)
