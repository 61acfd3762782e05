"""What the NVIDIA driver says of itself and of its devices, asked through `ctypes` and the standard library alone.

Set-up has to know which CUDA packages fit before any package is there, and a worker that only wants to skip a stage
should not pay for importing CuPy. Nothing here creates a context, so looking costs the device no memory.
Functions and attribute numbers are those of the CUDA Driver API's reference, sections "Initialization",
"Version Management" and "Device Management".
"""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass

LIBRARY = "libcuda.so.1"

_SUCCESS = 0
_ERROR_NOT_INITIALISED = 3
_ERROR_NO_DEVICE = 100
_COMPUTE_CAPABILITY_MAJOR = 75
_COMPUTE_CAPABILITY_MINOR = 76
_MULTIPROCESSOR = {  # the fields of Multiprocessor, in their order
    "count": 16,
    "threads": 39,
    "shared_bytes": 81,
    "registers": 82,
    "blocks": 106,
    "reserved_shared_bytes": 111,
}


@dataclass(frozen=True)
class DeviceInfo:
    """One device that CUDA would show to this process."""

    name: str
    compute_capability: tuple[int, int]
    total_memory: int  # bytes
    pci_bus_id: str  # `0000:3B:00.0`, by which NVML knows the same device

    @property
    def sm(self) -> str:
        """The compute capability as compilers spell it: `sm_90`."""
        major, minor = self.compute_capability
        return f"sm_{major}{minor}"


@dataclass(frozen=True)
class Multiprocessor:
    """What each of a device's multiprocessors has room for at once."""

    count: int  # how many the device has
    threads: int
    shared_bytes: int
    registers: int
    blocks: int
    reserved_shared_bytes: int  # of each block, for the system


class _NoDeviceError(Exception):
    """There is no usable device; the text is the reason in a few words."""


def driver_version() -> tuple[int, int] | None:
    """The newest CUDA version that the driver supports, such as (13, 0); None without a driver."""
    try:
        version = ctypes.c_int()
        status = _library().cuDriverGetVersion(ctypes.byref(version))
    except _NoDeviceError:
        return None
    if status != _SUCCESS or version.value < 1000:
        return None
    return version.value // 1000, version.value % 1000 // 10


def devices() -> list[DeviceInfo]:
    """The devices in CUDA's own order, which heeds `CUDA_VISIBLE_DEVICES`; none where `no_device_reason` has one."""
    try:
        return _devices()
    except _NoDeviceError:
        return []


def initialised() -> bool:
    """Whether this process has initialised CUDA already, after which no fork of it can use a device."""
    try:
        count = ctypes.c_int()
        status: int = _library().cuDeviceGetCount(ctypes.byref(count))
    except _NoDeviceError:
        return False
    return status != _ERROR_NOT_INITIALISED


def multiprocessor() -> Multiprocessor | None:
    """The multiprocessors of the first device; None without one."""
    try:
        cuda = _library()
        _devices()
        return Multiprocessor(**{name: _attribute(cuda, number, 0) for name, number in _MULTIPROCESSOR.items()})
    except _NoDeviceError:
        return None


def no_device_reason() -> str | None:
    """Why CUDA has no device for this process, in a few words; None when it has one."""
    try:
        _devices()
    except _NoDeviceError as reason:
        return str(reason)
    return None


def _library() -> ctypes.CDLL:
    """The driver's library, loaded once by the dynamic linker however often it is asked for."""
    try:
        return ctypes.CDLL(LIBRARY)
    except OSError as error:
        raise _NoDeviceError(f"no NVIDIA driver ({LIBRARY} not found)") from error


def _devices() -> list[DeviceInfo]:
    """Every visible device, one at least; raises _NoDeviceError otherwise."""
    cuda = _library()
    status = cuda.cuInit(0)
    if status == _ERROR_NO_DEVICE:
        raise _NoDeviceError(_none_visible())
    _check(status, "cuInit")
    count = ctypes.c_int()
    _check(cuda.cuDeviceGetCount(ctypes.byref(count)), "cuDeviceGetCount")
    if count.value == 0:
        raise _NoDeviceError(_none_visible())
    return [_device(cuda, ordinal) for ordinal in range(count.value)]


def _device(cuda: ctypes.CDLL, ordinal: int) -> DeviceInfo:
    """The facts about one device."""
    device, memory = ctypes.c_int(), ctypes.c_size_t()
    _check(cuda.cuDeviceGet(ctypes.byref(device), ordinal), "cuDeviceGet")
    name, bus_id = ctypes.create_string_buffer(256), ctypes.create_string_buffer(32)
    _check(cuda.cuDeviceGetName(name, len(name), device), "cuDeviceGetName")
    _check(cuda.cuDeviceGetPCIBusId(bus_id, len(bus_id), device), "cuDeviceGetPCIBusId")
    _check(cuda.cuDeviceTotalMem_v2(ctypes.byref(memory), device), "cuDeviceTotalMem")
    numbers = (_COMPUTE_CAPABILITY_MAJOR, _COMPUTE_CAPABILITY_MINOR)
    major, minor = (_attribute(cuda, number, device.value) for number in numbers)
    return DeviceInfo(
        name=name.value.decode(),
        compute_capability=(major, minor),
        total_memory=memory.value,
        pci_bus_id=bus_id.value.decode(),
    )


def _attribute(cuda: ctypes.CDLL, number: int, device: int) -> int:
    """One number about a device."""
    value = ctypes.c_int()
    _check(cuda.cuDeviceGetAttribute(ctypes.byref(value), number, device), "cuDeviceGetAttribute")
    return value.value


def _check(status: int, call: str) -> None:
    """Turn an error code of the driver into a reason that names the call and the number."""
    if status != _SUCCESS:
        raise _NoDeviceError(f"{call} failed with error {status} of the NVIDIA driver")


def _none_visible() -> str:
    """The reason when the driver works and shows no device, with the variable that is the usual cause."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    cause = "" if visible is None else f" (CUDA_VISIBLE_DEVICES is '{visible}')"
    return f"driver present but no CUDA device{cause}"
