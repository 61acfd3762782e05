"""How the GPU fares while a stage runs on it: clocks, heat, power, and whether it slows itself down."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import Any, Self

from common.cuda import driver
from ladder.records.run import GpuState

LOOK_EVERY_S = 0.0005


class ClockError(Exception):
    """Clocks that cannot be locked or reset: why, in a few words."""


class GpuMonitor:
    """NVML's view of the first visible GPU, opened once; says nothing where there is no NVML, or no permission."""

    def __init__(self) -> None:
        self._handle: Any = None
        try:
            import pynvml
        except ImportError:
            return
        self._nvml: Any = pynvml
        found = driver.devices()
        if found:
            # Not by index: NVML counts every GPU, CUDA only those in CUDA_VISIBLE_DEVICES and in an order of its own.
            self._handle = self._ask(self._open, found[0].pci_bus_id)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._handle is not None:
            self._handle = None
            self._ask(self._nvml.nvmlShutdown)

    def read(self) -> list[GpuState]:
        """The GPU's clock, temperature, power and what slows it down at this moment; empty where NVML does not say."""
        state = self._ask(self._state)
        return [state] if state else []

    def describe(self) -> dict[str, Any]:
        """The driver's version, the power limit in W and the highest SM clock in MHz; None for what NVML keeps back."""
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
        """The SM clock at this moment and the one that applications are given, in MHz; None for what is kept back."""
        if self._handle is None:
            return {}
        nvml, handle = self._nvml, self._handle
        return {
            "sm_mhz": self._ask(nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_SM),
            "application_sm_mhz": self._ask(nvml.nvmlDeviceGetApplicationsClock, handle, nvml.NVML_CLOCK_SM),
        }

    def lock_clocks(self, mhz: int) -> None:
        """Hold the SM clock at a frequency until `reset_clocks`, by whichever process; raises ClockError."""
        if self._handle is None:
            raise ClockError(driver.no_device_reason() or "NVML does not open this GPU")
        known = self._supported_mhz()
        if known and mhz not in known:
            nearest = min(known, key=lambda one: abs(one - mhz))
            raise ClockError(f"this GPU has clocks from {known[0]} to {known[-1]} MHz, the nearest is {nearest}")
        self._set_clocks(self._nvml.nvmlDeviceSetGpuLockedClocks, mhz, mhz)

    def reset_clocks(self) -> None:
        """Let the GPU choose its clocks again; raises ClockError."""
        if self._handle is None:
            raise ClockError("NVML does not open this GPU")
        self._set_clocks(self._nvml.nvmlDeviceResetGpuLockedClocks)

    def memory_used_mib(self) -> float | None:
        """What all processes together hold of the GPU's memory; None where NVML does not say."""
        if self._handle is None:
            return None
        info = self._ask(self._nvml.nvmlDeviceGetMemoryInfo, self._handle)
        return info.used / 2**20 if info else None

    def _open(self, pci_bus_id: str) -> Any:
        self._nvml.nvmlInit()
        return self._nvml.nvmlDeviceGetHandleByPciBusId(pci_bus_id)

    def _supported_mhz(self) -> list[int]:
        """The SM clocks that go with the fastest memory clock, the lowest first; empty where NVML does not say."""
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

    def _state(self) -> GpuState | None:
        if self._handle is None:
            return None
        nvml, handle = self._nvml, self._handle
        reasons = nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)
        # Only what slows a kernel that runs: neither an idle GPU's low clocks nor clocks that someone set.
        slowing = {
            nvml.nvmlClocksThrottleReasonSwPowerCap: "power cap",
            nvml.nvmlClocksThrottleReasonHwSlowdown: "hardware slowdown",
            nvml.nvmlClocksThrottleReasonSwThermalSlowdown: "thermal (software)",
            nvml.nvmlClocksThrottleReasonHwThermalSlowdown: "thermal (hardware)",
            nvml.nvmlClocksThrottleReasonHwPowerBrakeSlowdown: "power brake",
        }
        return GpuState(
            sm_mhz=nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM),
            temperature_c=nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU),
            power_w=nvml.nvmlDeviceGetPowerUsage(handle) / 1000,
            throttle_reasons=[name for bit, name in slowing.items() if reasons & bit],
            other_processes=self._other_processes(),
        )

    def _other_processes(self) -> int | None:
        """How many processes compute on this GPU beside the one that asks, which may see itself under another id."""
        found = self._ask(self._nvml.nvmlDeviceGetComputeRunningProcesses, self._handle)
        return None if found is None else max(len(found) - 1, 0)

    def _ask(self, call: Callable[..., Any], *arguments: Any) -> Any:
        """What NVML answers, None where it refuses."""
        try:
            return call(*arguments)
        except self._nvml.NVMLError:
            return None


class GpuMemory:
    """What this process takes of the GPU's memory from now on, as the difference that it makes to all that is used.

    Frameworks keep what they once took, so that one look at the end sees the most that was held; what a stage takes and
    gives back in every step is seen while it is watched. NVML's own account of a process is not to be had inside
    containers.
    """

    def __init__(self, monitor: GpuMonitor) -> None:
        self._monitor = monitor
        self._before = monitor.memory_used_mib()
        self._most = 0.0

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Look every half millisecond while a block of code runs, from a thread; nothing that is timed."""
        done = Event()

        def look() -> None:
            while (used := self._monitor.memory_used_mib()) is not None:
                self._most = max(self._most, used)
                if done.wait(LOOK_EVERY_S):
                    return

        thread = Thread(target=look, daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    def taken_mib(self) -> float | None:
        """The most of what was seen, in MiB, the CUDA context included; None where NVML does not say."""
        now = self._monitor.memory_used_mib()
        return None if now is None or self._before is None else max(now, self._most) - self._before
