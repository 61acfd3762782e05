"""The harness's own fence and events, by direct calls into the driver.

ctypes keeps them independent of every stage and its libraries: none can influence whether the device has finished. In
a process that never used CUDA the fence does nothing.
"""

from __future__ import annotations

import ctypes
from ctypes import byref, c_float, c_int, c_uint, c_void_p
from functools import cache

SUCCESS = 0


class CudaError(Exception):
    """An error from the driver, possibly the sticky error of an earlier kernel."""


def fence() -> None:
    """Wait until every device of this process has finished all work on all streams.

    Raises CudaError if earlier work failed.
    """
    cuda = _driver()
    if cuda is None:
        return
    count = c_int()
    if cuda.cuDeviceGetCount(byref(count)) != SUCCESS:  # cuInit was never called
        return
    for device in range(count.value):
        flags, active = c_uint(), c_int()
        _check(cuda.cuDevicePrimaryCtxGetState(device, byref(flags), byref(active)))
        if active.value:
            _synchronise(cuda, device)


def _synchronise(cuda: ctypes.CDLL, device: int) -> None:
    """Wait for one device's primary context, shared by CuPy, PyTorch and JAX."""
    context = c_void_p()
    _check(cuda.cuDevicePrimaryCtxRetain(byref(context), device))
    try:
        _check(cuda.cuCtxPushCurrent_v2(context))
        try:
            _check(cuda.cuCtxSynchronize())
        finally:
            cuda.cuCtxPopCurrent_v2(byref(context))
    finally:
        cuda.cuDevicePrimaryCtxRelease_v2(device)


class EventPair:
    """Two CUDA events around a run on its stream: the device's own timing."""

    def __init__(self, stream: int) -> None:
        cuda = _driver()
        if cuda is None:
            raise CudaError("no CUDA driver")
        self._cuda = cuda
        self._stream = c_void_p(stream)
        self._begin, self._end = c_void_p(), c_void_p()
        _check(cuda.cuEventCreate(byref(self._begin), 0))
        _check(cuda.cuEventCreate(byref(self._end), 0))

    def begin(self) -> None:
        """Record the first event."""
        _check(self._cuda.cuEventRecord(self._begin, self._stream))

    def end(self) -> None:
        """Record the second event."""
        _check(self._cuda.cuEventRecord(self._end, self._stream))

    def seconds(self) -> float:
        """Seconds between the events; call after the fence."""
        milliseconds = c_float()
        _check(self._cuda.cuEventElapsedTime(byref(milliseconds), self._begin, self._end))
        return milliseconds.value / 1e3


@cache
def _driver() -> ctypes.CDLL | None:
    """The driver's library, loaded once: every timed run has a fence."""
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None


def _check(status: int) -> None:
    if status != SUCCESS:
        cuda = _driver()
        text = ctypes.c_char_p()
        if cuda is not None and cuda.cuGetErrorString(status, byref(text)) == SUCCESS and text.value:
            raise CudaError(f"CUDA: {text.value.decode()} (error {status})")
        raise CudaError(f"CUDA: error {status}")
