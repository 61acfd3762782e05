"""Reads the GPU's clocks, temperature, power, throttling and memory from NVML while a stage runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import Any, Self

from common.cuda import driver
from ladder.records.run import GpuState

NO_ENERGY = "--energy: there is no GPU here whose NVML counts energy; times are measured without it"
POLL_S = 0.0005
WATCHED = {
    "sm_mhz": "SM clock",
    "temperature_c": "temperature",
    "power_w": "power",
    "throttle_reasons": "throttling",
    "other_processes": "other processes",
}
"""The values of a reading, in words."""


class ClockError(Exception):
    """Clocks cannot be locked or reset; the message gives the reason in a few words."""


class GpuMonitor:
    """The first visible GPU as NVML reports it; readings are empty without a GPU or without permission."""

    def __init__(self) -> None:
        self.waiting = 0
        """Processes on the GPU that wait for their turn, and so do not count as others that compute there."""
        self._handle: Any = None
        import pynvml  # late: most commands need none

        self._nvml: Any = pynvml
        gpus = driver.devices()
        if gpus:
            # By bus id: NVML numbers all GPUs, CUDA only those in CUDA_VISIBLE_DEVICES, in its own order.
            self._handle = self._ask(self._open, gpus[0].pci_bus_id)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._handle is not None:
            self._handle = None
            self._ask(self._nvml.nvmlShutdown)

    def read(self) -> list[GpuState]:
        """The GPU's state now, None for each value that NVML refuses; empty without NVML."""
        return [] if self._handle is None else [self._state()]

    def refused(self) -> list[str]:
        """The values, in words, that NVML does not report of the GPU; empty without a GPU."""
        told = {name for state in self.read() for name in WATCHED if getattr(state, name) is not None}
        return [words for name, words in WATCHED.items() if name not in told] if driver.devices() else []

    def describe(self) -> dict[str, Any]:
        """The driver's version, the power limit in W and the highest SM clock in MHz; None where NVML refuses."""
        if self._handle is None:
            return {}
        nvml, handle = self._nvml, self._handle
        milliwatts = self._ask(nvml.nvmlDeviceGetEnforcedPowerLimit, handle)
        return {
            "driver": self._ask(nvml.nvmlSystemGetDriverVersion),
            "power_limit_w": milliwatts / 1000 if milliwatts else None,
            "max_sm_mhz": self._ask(nvml.nvmlDeviceGetMaxClockInfo, handle, nvml.NVML_CLOCK_SM),
        }

    def clocks(self) -> dict[str, Any]:
        """The SM clock now and the one set for applications, in MHz; None where NVML refuses."""
        if self._handle is None:
            return {}
        nvml, handle = self._nvml, self._handle
        return {
            "sm_mhz": self._ask(nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_SM),
            "application_sm_mhz": self._ask(nvml.nvmlDeviceGetApplicationsClock, handle, nvml.NVML_CLOCK_SM),
        }

    def lock_clocks(self, mhz: int) -> None:
        """Lock the SM clock until any process calls `reset_clocks`; raises ClockError."""
        if self._handle is None:
            raise ClockError(driver.no_device_reason() or "NVML does not open this GPU")
        known = self._supported_mhz()
        if known and mhz not in known:
            nearest = min(known, key=lambda supported: abs(supported - mhz))
            raise ClockError(f"this GPU has clocks from {known[0]} to {known[-1]} MHz, the nearest is {nearest}")
        self._set_clocks(self._nvml.nvmlDeviceSetGpuLockedClocks, mhz, mhz)

    def reset_clocks(self) -> None:
        """Let the GPU choose its clocks again; raises ClockError."""
        if self._handle is None:
            raise ClockError("NVML does not open this GPU")
        self._set_clocks(self._nvml.nvmlDeviceResetGpuLockedClocks)

    def memory_used_mib(self) -> float | None:
        """The GPU memory that all processes together use, in MiB; None if NVML does not report it."""
        if self._handle is None:
            return None
        info = self._ask(self._nvml.nvmlDeviceGetMemoryInfo, self._handle)
        return info.used / 2**20 if info else None

    def energy_j(self) -> float | None:
        """The joules that the GPU has drawn since its driver was loaded; None if NVML does not count them."""
        if self._handle is None:
            return None
        millijoules = self._ask(self._nvml.nvmlDeviceGetTotalEnergyConsumption, self._handle)
        return None if millijoules is None else millijoules / 1000

    def takes_several_processes(self) -> bool:
        """Whether several processes may have a context on the GPU; False where NVML does not say."""
        if self._handle is None:
            return False
        return bool(self._ask(self._nvml.nvmlDeviceGetComputeMode, self._handle) == self._nvml.NVML_COMPUTEMODE_DEFAULT)

    def _open(self, pci_bus_id: str) -> Any:
        self._nvml.nvmlInit()
        return self._nvml.nvmlDeviceGetHandleByPciBusId(pci_bus_id)

    def _supported_mhz(self) -> list[int]:
        """The SM clocks that the fastest memory clock allows, lowest first; empty if NVML does not report them."""
        nvml, handle = self._nvml, self._handle
        memory = self._ask(nvml.nvmlDeviceGetSupportedMemoryClocks, handle)
        return sorted(self._ask(nvml.nvmlDeviceGetSupportedGraphicsClocks, handle, max(memory)) or []) if memory else []

    def _set_clocks(self, call: Callable[..., Any], *mhz: int) -> None:
        try:
            call(self._handle, *mhz)
        except self._nvml.NVMLError as error:
            denied = getattr(error, "value", None) == self._nvml.NVML_ERROR_NO_PERMISSION
            why = "setting clocks takes an administrator's permission" if denied else "NVML refuses to set clocks"
            raise ClockError(f"{why} ({error})") from error

    def _state(self) -> GpuState:
        nvml, handle, ask = self._nvml, self._handle, self._ask
        reasons = ask(nvml.nvmlDeviceGetCurrentClocksThrottleReasons, handle)
        # Only reasons that slow a running kernel: not an idle GPU's low clocks, not clocks set by a user.
        slowing = {
            nvml.nvmlClocksThrottleReasonSwPowerCap: "power cap",
            nvml.nvmlClocksThrottleReasonHwSlowdown: "hardware slowdown",
            nvml.nvmlClocksThrottleReasonSwThermalSlowdown: "thermal (software)",
            nvml.nvmlClocksThrottleReasonHwThermalSlowdown: "thermal (hardware)",
            nvml.nvmlClocksThrottleReasonHwPowerBrakeSlowdown: "power brake",
        }
        milliwatts = ask(nvml.nvmlDeviceGetPowerUsage, handle)
        return GpuState(
            sm_mhz=ask(nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_SM),
            temperature_c=ask(nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU),
            power_w=None if milliwatts is None else milliwatts / 1000,
            throttle_reasons=None if reasons is None else [name for bit, name in slowing.items() if reasons & bit],
            other_processes=self._other_processes(),
        )

    def _other_processes(self) -> int | None:
        """How many other processes compute on this GPU. A container may see itself under another id, so one is ours."""
        processes = self._ask(self._nvml.nvmlDeviceGetComputeRunningProcesses, self._handle)
        return None if processes is None else max(len(processes) - 1 - self.waiting, 0)

    def _ask(self, call: Callable[..., Any], *arguments: Any) -> Any:
        """NVML's answer; None if it refuses."""
        try:
            return call(*arguments)
        except self._nvml.NVMLError:
            return None


class GpuMemory:
    """The peak of the GPU memory that all processes use; less what is used once this one has ended, it is its own.

    Frameworks keep what they allocate, so a reading at the end sees their peak. `sampled` also sees memory that a stage
    allocates and frees within each step. NVML's figures per process are not available inside containers.
    """

    def __init__(self, monitor: GpuMonitor) -> None:
        self._monitor = monitor
        self._peak = 0.0

    @contextmanager
    def sampled(self) -> Iterator[None]:
        """Sample from a thread every half millisecond inside the context, which must not be timed."""
        done = Event()

        def sample() -> None:
            while (used := self._monitor.memory_used_mib()) is not None:
                self._peak = max(self._peak, used)
                if done.wait(POLL_S):
                    return

        thread = Thread(target=sample, daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    def peak_mib(self) -> float | None:
        """The peak so far in MiB, including CUDA contexts; None if NVML does not report it."""
        now = self._monitor.memory_used_mib()
        return None if now is None else max(now, self._peak)
