"""The harness's own fence and events, straight from the driver.

Through ctypes and nothing else, so that no stage, and no library that a stage brings, has a say in whether the device
has finished. A process that never touched CUDA gets a fence that does nothing.
"""

from __future__ import annotations

import ctypes
from ctypes import byref, c_float, c_int, c_uint, c_void_p
from functools import cache

SUCCESS = 0


class CudaError(Exception):
    """The driver refused; a sticky error of an earlier kernel shows here, too."""


def fence() -> None:
    """Wait until every device that this process uses has finished everything, whatever the stream.

    Raises CudaError when the device reports that earlier work failed.
    """
    cuda = _driver()
    if cuda is None:
        return
    count = c_int()
    if cuda.cuDeviceGetCount(byref(count)) != SUCCESS:  # cuInit was never called: nothing to wait for
        return
    for device in range(count.value):
        flags, active = c_uint(), c_int()
        _check(cuda.cuDevicePrimaryCtxGetState(device, byref(flags), byref(active)))
        if active.value:
            _synchronise(cuda, device)


def _synchronise(cuda: ctypes.CDLL, device: int) -> None:
    """Wait for one device's primary context, which CuPy, PyTorch and JAX all share."""
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
    """Two CUDA events around a run, on the stream that it runs on: the device's own view of how long it took."""

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
        """Mark the begin on the stream."""
        _check(self._cuda.cuEventRecord(self._begin, self._stream))

    def end(self) -> None:
        """Mark the end on the stream."""
        _check(self._cuda.cuEventRecord(self._end, self._stream))

    def seconds(self) -> float:
        """The time between the two, once both have passed (that is, after the fence)."""
        milliseconds = c_float()
        _check(self._cuda.cuEventElapsedTime(byref(milliseconds), self._begin, self._end))
        return milliseconds.value / 1e3


@cache
def _driver() -> ctypes.CDLL | None:
    """The driver's library; looked for once, since a fence stands in every timed run."""
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
