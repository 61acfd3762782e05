"""Environment variables that change what a library computes, or how fast."""

from __future__ import annotations

import os
import re

# With one of these a stage is not what its name says: eager where it is called compiled, or of another precision.
CLEARED = (
    "CUDA_LAUNCH_BLOCKING", "CUPY_TF32", "JAX_DEFAULT_MATMUL_PRECISION", "JAX_DISABLE_JIT", "JAX_ENABLE_X64",
    "NUMBA_DISABLE_JIT", "NUMBA_ENABLE_CUDASIM", "NVIDIA_TF32_OVERRIDE", "PYTORCH_JIT",
    "PYTORCH_NO_CUDA_MEMORY_CACHING", "TORCHDYNAMO_DISABLE", "TORCHDYNAMO_SUPPRESS_ERRORS",
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "TORCH_COMPILE_DISABLE", "TRITON_INTERPRET",
)  # fmt: skip
# What libraries, allocators and Python read, but for where things lie, versions, and which GPU is visible.
RECORDED = re.compile(
    "(ATEN|BLIS|CUBLAS|CUBLASLT|CUDA|CUDNN|CUPY|CUTE|DNNL|GOMP|GOTO|JAX|KMP|MALLOC|MKL|NCCL|NPY|NUMBA|OMP|ONEDNN|OPENBLAS|"
    "PYTORCH|TF_XLA|TORCH|TORCHDYNAMO|TORCHINDUCTOR|TRITON|XLA)_(?!.*(VERSION|HOME|PATH|DIR|ROOT|DEVICES|LIST|LIB_OK|CUDA_CHECK)$)|"
    "NVIDIA_TF32_OVERRIDE$|"
    "CXX$|LD_PRELOAD$|GLIBC_TUNABLES$|PYTHON(_CPU_COUNT|DEVMODE|_GIL|_JIT|MALLOC|OPTIMIZE|TRACEMALLOC)$"
)
LONGEST = 200  # letters of a value
FOLDERS = re.compile(r"[^\s:;,=]*/")


def clear() -> list[str]:
    """Remove the variables of `CLEARED` from this process and those that it starts; returns those that were set."""
    return [name for name in CLEARED if os.environ.pop(name, "")]


def recorded() -> dict[str, str]:
    """The variables of `RECORDED` that are set, without folders in their values."""
    return {name: FOLDERS.sub("", os.environ[name])[:LONGEST] for name in sorted(os.environ) if RECORDED.match(name)}
