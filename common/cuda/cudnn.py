"""cuDNN's softmax by its C API.

No maintained Python binding has it: CuPy dropped cuDNN, and cuDNN's front end has graphs of operations only. ctypes
calls the six functions needed.
"""

from __future__ import annotations

import ctypes
from ctypes import byref, c_char_p, c_float, c_int, c_void_p
from typing import Any

from cuda.pathfinder import load_nvidia_dynamic_lib

from common.cuda.gpu import Gpu

# cudnn_ops.h
TENSOR_NCHW = 0
DATA_FLOAT = 0
SOFTMAX_ACCURATE = 1
SOFTMAX_MODE_INSTANCE = 0


class CudnnError(Exception):
    """cuDNN returned an error."""


class CudnnSoftmax:
    """probs (B, C) = softmax of logits (B, C) over the classes, float32, on a GPU's stream."""

    def __init__(self, gpu: Gpu, logits: Any, probs: Any) -> None:
        self._lib = ctypes.CDLL(load_nvidia_dynamic_lib("cudnn").abs_path)
        self._lib.cudnnGetErrorString.restype = c_char_p
        self._handle, self._shape = c_void_p(), c_void_p()
        self._check(self._lib.cudnnCreate(byref(self._handle)))
        self._check(self._lib.cudnnSetStream(self._handle, c_void_p(gpu.stream_handle)))
        self._check(self._lib.cudnnCreateTensorDescriptor(byref(self._shape)))
        rows, classes = logits.shape
        sizes = (c_int(rows), c_int(classes), c_int(1), c_int(1))
        self._check(self._lib.cudnnSetTensor4dDescriptor(self._shape, TENSOR_NCHW, DATA_FLOAT, *sizes))
        one, zero = c_float(1.0), c_float(0.0)
        self._kept = (one, zero, logits, probs)  # keeps the memory behind the addresses alive
        scaled_logits = (byref(one), self._shape, c_void_p(logits.data.ptr))
        scaled_probs = (byref(zero), self._shape, c_void_p(probs.data.ptr))
        how = (c_int(SOFTMAX_ACCURATE), c_int(SOFTMAX_MODE_INSTANCE))
        self._arguments = (self._handle, *how, *scaled_logits, *scaled_probs)

    def __call__(self) -> None:
        """Enqueue the softmax; raises CudnnError."""
        self._check(self._lib.cudnnSoftmaxForward(*self._arguments))

    def _check(self, status: int) -> None:
        if status:
            raise CudnnError(f"cuDNN: {self._lib.cudnnGetErrorString(status).decode()} (status {status})")
