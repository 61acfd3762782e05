"""Facts from the NVIDIA driver about itself and its devices, by `ctypes` and the standard library alone.

Set-up must choose CUDA packages before any is installed, and a worker that skips a stage should not import CuPy.
Nothing here creates a context, so a query takes no device memory. Functions and attribute numbers are from the CUDA
Driver API reference, sections "Initialization", "Version Management", "Device Management" and "Primary Context
Management".
"""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass

LIBRARY = "libcuda.so.1"

OLDEST_GPU = {13: (7, 5), 12: (5, 0)}
"""The oldest compute capability that each CUDA compiles for, by its release notes; newest CUDA first."""

_SUCCESS = 0
_ERROR_NOT_INITIALISED = 3
_ERROR_NO_DEVICE = 100
# Errors of cuInit that a user can mend: the driver's name for each, and what helps.
_REMEDIES = {
    34: (
        "CUDA_ERROR_STUB_LIBRARY",
        "The linker finds the toolkit's stub before the driver: take `.../stubs` out of LD_LIBRARY_PATH",
    ),
    802: (
        "CUDA_ERROR_SYSTEM_NOT_READY",
        "GPUs behind an NVSwitch wait for NVIDIA's fabric manager: `sudo systemctl start nvidia-fabricmanager`, "
        "of the driver's own version",
    ),
    803: (
        "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
        "libcuda.so.1 is not of the kernel module's version, as after an update: reboot, or restart the container",
    ),
    804: (
        "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE",
        "Forward compatibility takes a data-centre GPU: take `.../compat` out of LD_LIBRARY_PATH, or update the driver",
    ),
    999: (
        "CUDA_ERROR_UNKNOWN",
        "After suspend, or without /dev/nvidia-uvm: `sudo rmmod nvidia_uvm; sudo modprobe nvidia_uvm`, or reboot",
    ),
}
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
    """One device visible to this process."""

    name: str
    compute_capability: tuple[int, int]
    total_memory: int  # bytes
    pci_bus_id: str  # `0000:3B:00.0`, the device's identity in NVML

    @property
    def sm(self) -> str:
        """The compute capability in compiler form, for example `sm_90`."""
        major, minor = self.compute_capability
        return f"sm_{major}{minor}"


@dataclass(frozen=True)
class Multiprocessor:
    """Resources of each multiprocessor of a device."""

    count: int  # multiprocessors of the device
    threads: int
    shared_bytes: int
    registers: int
    blocks: int
    reserved_shared_bytes: int  # bytes of each block, for the system


class _NoDeviceError(Exception):
    """No usable device; the text is a short reason, `remedy` a sentence without a full stop, or empty."""

    def __init__(self, reason: str, remedy: str = "") -> None:
        super().__init__(reason)
        self.remedy = remedy


def driver_version() -> tuple[int, int] | None:
    """Newest CUDA version of the driver, for example (13, 0); None without a driver."""
    try:
        version = ctypes.c_int()
        status = _library().cuDriverGetVersion(ctypes.byref(version))
    except _NoDeviceError:
        return None
    if status != _SUCCESS or version.value < 1000:
        return None
    return version.value // 1000, version.value % 1000 // 10


def devices() -> list[DeviceInfo]:
    """Visible devices in CUDA's order (`CUDA_VISIBLE_DEVICES`); empty if `no_device_reason` returns one."""
    try:
        return _devices()
    except _NoDeviceError:
        return []


def newest_cuda() -> int | None:
    """The newest CUDA, 13 or 12, that the driver supports and that compiles for the first device; None for neither."""
    version, first = driver_version() or (0, 0), devices()[:1]
    for major, oldest in OLDEST_GPU.items():
        if version[0] >= major and all(gpu.compute_capability >= oldest for gpu in first):
            return major
    return None


def initialised() -> bool:
    """Whether this process has initialised CUDA; its later forks cannot use a device."""
    try:
        count = ctypes.c_int()
        status: int = _library().cuDeviceGetCount(ctypes.byref(count))
    except _NoDeviceError:
        return False
    return status != _ERROR_NOT_INITIALISED


def has_context() -> bool:
    """Whether this process has a context on its first device, and so counts as one that computes there."""
    try:
        flags, active = ctypes.c_uint(), ctypes.c_int()
        status = _library().cuDevicePrimaryCtxGetState(0, ctypes.byref(flags), ctypes.byref(active))
        return bool(status == _SUCCESS and active.value)
    except _NoDeviceError:
        return False


def multiprocessor() -> Multiprocessor | None:
    """Multiprocessors of the first device; None without a device."""
    try:
        cuda = _library()
        _devices()
        return Multiprocessor(**{name: _attribute(cuda, number, 0) for name, number in _MULTIPROCESSOR.items()})
    except _NoDeviceError:
        return None


def no_device_reason() -> str | None:
    """A short reason why this process has no CUDA device; None if it has one."""
    try:
        _devices()
    except _NoDeviceError as reason:
        return str(reason)
    return None


def no_device_remedy() -> str:
    """What helps against a driver's error that has a known cause, a sentence without a full stop; empty otherwise."""
    try:
        _devices()
    except _NoDeviceError as reason:
        return reason.remedy
    return ""


def _library() -> ctypes.CDLL:
    """The driver's library; the dynamic linker loads it once."""
    try:
        return ctypes.CDLL(LIBRARY)
    except OSError as error:
        raise _NoDeviceError(f"no NVIDIA driver ({LIBRARY} not found)") from error


def _devices() -> list[DeviceInfo]:
    """All visible devices; _NoDeviceError without any."""
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
    """Facts about one device."""
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
    """One attribute of a device."""
    value = ctypes.c_int()
    _check(cuda.cuDeviceGetAttribute(ctypes.byref(value), number, device), "cuDeviceGetAttribute")
    return value.value


def _check(status: int, call: str) -> None:
    """Raise _NoDeviceError with the call and the driver's error, by name where that has a known cause."""
    if status != _SUCCESS:
        name, remedy = _REMEDIES.get(status, ("", ""))
        error = f"{name} ({status})" if name else f"error {status} of the NVIDIA driver"
        raise _NoDeviceError(f"{call} failed with {error}", remedy)


def _none_visible() -> str:
    """The reason for a driver without devices, with CUDA_VISIBLE_DEVICES, the usual cause."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    cause = "" if visible is None else f" (CUDA_VISIBLE_DEVICES is '{visible}')"
    return f"driver present but no CUDA device{cause}"
