"""GPUs that are not there: fakes of the driver and of NVML."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from common.cuda import driver

H200 = driver.DeviceInfo("NVIDIA H200", (9, 0), 141 << 30, "0000:3B:00.0")
RTX_3060 = driver.DeviceInfo("NVIDIA GeForce RTX 3060", (8, 6), 12 << 30, "0000:01:00.0")
V100 = driver.DeviceInfo("Tesla V100-SXM2-16GB", (7, 0), 16 << 30, "0000:06:00.0")
K80 = driver.DeviceInfo("Tesla K80", (3, 7), 12 << 30, "0000:07:00.0")

SW_POWER_CAP, HW_SLOWDOWN, SW_THERMAL, HW_THERMAL, POWER_BRAKE = 0x4, 0x8, 0x20, 0x40, 0x80
IDLE, CLOCKS_SETTING, SYNC_BOOST = 0x1, 0x2, 0x10


def show(monkeypatch: pytest.MonkeyPatch, *devices: driver.DeviceInfo, version: tuple[int, int] = (13, 0)) -> None:
    """Make the driver show these devices."""
    monkeypatch.setattr(driver, "driver_version", lambda: version)
    monkeypatch.setattr(driver, "devices", lambda: list(devices))
    monkeypatch.setattr(driver, "no_device_reason", lambda: None if devices else "driver present but no CUDA device")


def hide(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the driver unavailable."""
    monkeypatch.setattr(driver, "driver_version", lambda: None)
    monkeypatch.setattr(driver, "devices", list)
    monkeypatch.setattr(driver, "no_device_reason", lambda: "no NVIDIA driver (libcuda.so.1 not found)")


class FakeNvml(ModuleType):
    """A fake pynvml with GPUs at the given bus ids; a handle is the bus id. Calls named in `refused` raise."""

    NVML_CLOCK_SM = 1
    NVML_ERROR_NO_PERMISSION = 4
    NVML_TEMPERATURE_GPU = 0
    nvmlClocksThrottleReasonSwPowerCap = SW_POWER_CAP  # noqa: N815, NVML's own spelling, here and below
    nvmlClocksThrottleReasonHwSlowdown = HW_SLOWDOWN  # noqa: N815
    nvmlClocksThrottleReasonSwThermalSlowdown = SW_THERMAL  # noqa: N815
    nvmlClocksThrottleReasonHwThermalSlowdown = HW_THERMAL  # noqa: N815
    nvmlClocksThrottleReasonHwPowerBrakeSlowdown = POWER_BRAKE  # noqa: N815

    class NVMLError(Exception):
        """What pynvml raises."""

        value = 4

    def __init__(self, *bus_ids: str, reasons: int = 0, refused: frozenset[str] = frozenset()) -> None:
        super().__init__("pynvml")
        self.bus_ids = bus_ids
        self.reasons = reasons
        self.refused = refused
        self.open = 0
        self.computing = 1
        self.used_mib = 512
        self.compute_mode = self.NVML_COMPUTEMODE_DEFAULT = 0
        self.locked: list[tuple[int, int]] = []

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("nvml") and name in super().__getattribute__("refused"):
            return self._refuse
        return super().__getattribute__(name)

    def _refuse(self, *_: object) -> None:
        raise self.NVMLError("Insufficient Permissions")

    def nvmlInit(self) -> None:  # noqa: N802
        self.open += 1

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.open -= 1

    def nvmlDeviceGetHandleByPciBusId(self, bus_id: str) -> str:  # noqa: N802
        if bus_id not in self.bus_ids:
            raise self.NVMLError("Not Found")
        return bus_id

    def nvmlDeviceGetClockInfo(self, handle: str, clock: int) -> int:  # noqa: N802
        assert clock == self.NVML_CLOCK_SM
        return 1000 + self.bus_ids.index(handle)

    def nvmlDeviceGetMaxClockInfo(self, handle: str, clock: int) -> int:  # noqa: N802
        assert clock == self.NVML_CLOCK_SM
        return 1980

    def nvmlDeviceGetApplicationsClock(self, handle: str, clock: int) -> int:  # noqa: N802
        assert clock == self.NVML_CLOCK_SM
        return 1830

    def nvmlDeviceGetSupportedMemoryClocks(self, handle: str) -> list[int]:  # noqa: N802
        return [3201, 1593]

    def nvmlDeviceGetSupportedGraphicsClocks(self, handle: str, memory: int) -> list[int]:  # noqa: N802
        return list(range(1980, 344, -15)) if memory == 3201 else [345]

    def nvmlDeviceSetGpuLockedClocks(self, handle: str, least: int, most: int) -> None:  # noqa: N802
        self.locked.append((least, most))

    def nvmlDeviceResetGpuLockedClocks(self, handle: str) -> None:  # noqa: N802
        self.locked.clear()

    def nvmlDeviceGetMemoryInfo(self, handle: str) -> Any:  # noqa: N802
        return SimpleNamespace(used=self.used_mib << 20)

    def nvmlDeviceGetComputeMode(self, handle: str) -> int:  # noqa: N802
        return self.compute_mode

    def nvmlDeviceGetTemperature(self, handle: str, sensor: int) -> int:  # noqa: N802
        return 41

    def nvmlDeviceGetPowerUsage(self, handle: str) -> int:  # noqa: N802
        return 123456

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: str) -> int:  # noqa: N802
        return 5_000_250

    def nvmlDeviceGetEnforcedPowerLimit(self, handle: str) -> int:  # noqa: N802
        return 700000

    def nvmlSystemGetDriverVersion(self) -> str:  # noqa: N802
        return "580.65.06"

    def nvmlDeviceGetComputeRunningProcesses(self, handle: str) -> list[str]:  # noqa: N802
        return ["this one"] * self.computing

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: str) -> int:  # noqa: N802
        return self.reasons

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Make `import pynvml` return this fake."""
        monkeypatch.setitem(sys.modules, "pynvml", self)
