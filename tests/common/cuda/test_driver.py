"""The driver's facts, read from a library of this test's own making."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import pytest

from common.cuda import driver
from ladder.machine.environment import how_to_get_gpu


class FakeDriver:
    """A libcuda.so.1 with the given devices, which writes through the pointers that it is handed."""

    def __init__(self, version: int = 13000, names: tuple[str, ...] = ("Fake H200",), init_status: int = 0) -> None:
        self.version = version
        self.names = names
        self.init_status = init_status
        self.initialised = False

    def cuDriverGetVersion(self, version: Any) -> int:  # noqa: N802, the driver's own spelling, here and below
        version._obj.value = self.version
        return 0

    def cuInit(self, flags: int) -> int:  # noqa: N802
        self.initialised = True
        return self.init_status

    def cuDeviceGetCount(self, count: Any) -> int:  # noqa: N802
        if not self.initialised:
            return 3
        count._obj.value = len(self.names)
        return 0

    def cuDeviceGet(self, device: Any, ordinal: int) -> int:  # noqa: N802
        device._obj.value = ordinal
        return 0

    def cuDeviceGetName(self, buffer: Any, size: int, device: Any) -> int:  # noqa: N802
        buffer.value = self.names[device.value].encode()
        return 0

    def cuDeviceGetPCIBusId(self, buffer: Any, size: int, device: Any) -> int:  # noqa: N802
        buffer.value = f"0000:{device.value + 0x3B:02X}:00.0".encode()
        return 0

    def cuDeviceTotalMem_v2(self, memory: Any, device: Any) -> int:  # noqa: N802
        memory._obj.value = 150 << 30
        return 0

    def cuDeviceGetAttribute(self, value: Any, attribute: int, device: Any) -> int:  # noqa: N802
        value._obj.value = {75: 8, 76: 6}[attribute]
        return 0


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Callable[[FakeDriver], None]:
    """Make this the driver that the process finds, and forget what the shell says of visible devices."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def install(fake: FakeDriver) -> None:
        def load(name: str) -> FakeDriver:
            assert name == "libcuda.so.1"
            return fake

        monkeypatch.setattr(ctypes, "CDLL", load)

    return install


def no_library(name: str) -> ctypes.CDLL:
    raise OSError(f"{name}: cannot open shared object file")


def test_devices_are_read_in_the_driver_s_order(install: Callable[[FakeDriver], None]) -> None:
    install(FakeDriver(names=("First", "Second")))
    first, second = driver.devices()
    assert first == driver.DeviceInfo("First", (8, 6), 150 << 30, "0000:3B:00.0")
    assert (second.name, second.pci_bus_id, second.sm) == ("Second", "0000:3C:00.0", "sm_86")
    assert driver.no_device_reason() is None
    assert driver.no_device_remedy() == ""


@pytest.mark.parametrize(("number", "version"), [(13000, (13, 0)), (12080, (12, 8)), (0, None)])
def test_version_is_split_as_cuda_numbers_it(
    install: Callable[[FakeDriver], None], number: int, version: tuple[int, int] | None
) -> None:
    install(FakeDriver(number))
    assert driver.driver_version() == version


def test_no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", no_library)
    assert driver.driver_version() is None
    assert driver.devices() == []
    assert driver.no_device_reason() == "no NVIDIA driver (libcuda.so.1 not found)"


@pytest.mark.parametrize("fake", [FakeDriver(init_status=100), FakeDriver(names=())])
def test_no_device(install: Callable[[FakeDriver], None], monkeypatch: pytest.MonkeyPatch, fake: FakeDriver) -> None:
    install(fake)
    assert driver.devices() == []
    assert driver.no_device_reason() == "driver present but no CUDA device"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert driver.no_device_reason() == "driver present but no CUDA device (CUDA_VISIBLE_DEVICES is '')"


@pytest.mark.parametrize(
    ("status", "name", "helps"),
    [
        (34, "CUDA_ERROR_STUB_LIBRARY", "LD_LIBRARY_PATH"),
        (802, "CUDA_ERROR_SYSTEM_NOT_READY", "nvidia-fabricmanager"),
        (803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "reboot"),
        (804, "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE", "LD_LIBRARY_PATH"),
        (999, "CUDA_ERROR_UNKNOWN", "nvidia_uvm"),
    ],
)
def test_an_init_error_with_a_known_cause_has_its_name_and_what_helps(
    install: Callable[[FakeDriver], None], status: int, name: str, helps: str
) -> None:
    install(FakeDriver(init_status=status))
    assert driver.devices() == []
    assert driver.no_device_reason() == f"cuInit failed with {name} ({status})"
    assert helps in driver.no_device_remedy()
    assert how_to_get_gpu() == driver.no_device_remedy()
    install(FakeDriver(init_status=46))
    assert driver.no_device_reason() == "cuInit failed with error 46 of the NVIDIA driver"
    assert driver.no_device_remedy() == ""


def test_a_process_knows_whether_it_has_initialised_cuda(install: Callable[[FakeDriver], None]) -> None:
    install(FakeDriver())
    assert not driver.initialised()
    assert driver.devices()
    assert driver.initialised()


def test_a_process_knows_of_its_context(install: Callable[[FakeDriver], None], monkeypatch: pytest.MonkeyPatch) -> None:
    fake, status = FakeDriver(), [0, 0]  # what the query returns, and whether the context is active

    def state(device: int, flags: Any, active: Any) -> int:
        active._obj.value = status[1]
        return status[0]

    monkeypatch.setattr(fake, "cuDevicePrimaryCtxGetState", state, raising=False)
    install(fake)
    assert not driver.has_context()
    status[1] = 1
    assert driver.has_context()
    status[0] = 3  # not initialised
    assert not driver.has_context()
