"""The GPU monitor on a fake NVML: it reads the right GPU, and copes with refusals."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from ladder import doctor
from ladder.doctor import Finding
from ladder.machine import environment
from ladder.machine.environment import how_to_get_gpu
from ladder.machine.gpu_monitor import WATCHED, ClockError, GpuMemory, GpuMonitor
from ladder.records.run import GpuState
from tests.ladder import gpus
from tests.ladder.gpus import H200, RTX_3060, FakeNvml


def h200(monkeypatch: pytest.MonkeyPatch, *refused: str, reasons: int = 0) -> FakeNvml:
    """A machine with an H200, whose NVML refuses these calls."""
    gpus.show(monkeypatch, H200)
    nvml = FakeNvml(H200.pci_bus_id, reasons=reasons, refused=frozenset(refused))
    nvml.install(monkeypatch)
    return nvml


def test_it_reads_the_first_visible_gpu_by_its_bus_id(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus.show(monkeypatch, H200)
    nvml = FakeNvml(RTX_3060.pci_bus_id, H200.pci_bus_id)
    nvml.install(monkeypatch)
    with GpuMonitor() as monitor:
        assert nvml.open == 1
        for _ in range(2):
            assert monitor.read() == [GpuState(1001, 41, 123.456, throttle_reasons=[], other_processes=0)]
        assert monitor.describe() == {"driver": "580.65.06", "power_limit_w": 700.0, "max_sm_mhz": 1980}
        assert monitor.energy_j() == 5000.25
    assert nvml.open == 0
    assert monitor.read() == []


@pytest.mark.parametrize(("computing", "waiting", "others"), [(0, 0, 0), (1, 0, 0), (5, 0, 4), (5, 3, 1)])
def test_other_users_are_counted(monkeypatch: pytest.MonkeyPatch, computing: int, waiting: int, others: int) -> None:
    h200(monkeypatch).computing = computing
    with GpuMonitor() as monitor:
        monitor.waiting = waiting  # for their turn
        assert [state.other_processes for state in monitor.read()] == [others]


@pytest.mark.parametrize(
    ("reasons", "names"),
    [
        (gpus.IDLE | gpus.CLOCKS_SETTING | gpus.SYNC_BOOST, []),
        (gpus.SW_POWER_CAP | gpus.IDLE, ["power cap"]),
        (gpus.HW_SLOWDOWN | gpus.HW_THERMAL, ["hardware slowdown", "thermal (hardware)"]),
        (gpus.SW_THERMAL, ["thermal (software)"]),
        (gpus.HW_SLOWDOWN | gpus.POWER_BRAKE, ["hardware slowdown", "power brake"]),
    ],
)
def test_only_slowing_reasons_are_throttling(monkeypatch: pytest.MonkeyPatch, reasons: int, names: list[str]) -> None:
    h200(monkeypatch, reasons=reasons)
    with GpuMonitor() as monitor:
        assert [state.throttle_reasons for state in monitor.read()] == [names]


@pytest.mark.parametrize(
    ("call", "value"),
    [
        ("nvmlDeviceGetClockInfo", "sm_mhz"),
        ("nvmlDeviceGetTemperature", "temperature_c"),
        ("nvmlDeviceGetPowerUsage", "power_w"),
        ("nvmlDeviceGetCurrentClocksThrottleReasons", "throttle_reasons"),
        ("nvmlDeviceGetComputeRunningProcesses", "other_processes"),
    ],
)
def test_one_refused_value_leaves_the_others(monkeypatch: pytest.MonkeyPatch, call: str, value: str) -> None:
    h200(monkeypatch, reasons=gpus.SW_THERMAL)
    with GpuMonitor() as monitor:
        (whole,) = monitor.read()
        assert monitor.refused() == []
    rest = ("nvmlDeviceGetEnforcedPowerLimit", "nvmlDeviceGetTotalEnergyConsumption")
    h200(monkeypatch, call, *rest, reasons=gpus.SW_THERMAL)
    with GpuMonitor() as monitor:
        assert monitor.read() == [replace(whole, **{value: None})]
        assert monitor.refused() == [WATCHED[value]]
        assert monitor.describe() == {"driver": "580.65.06", "power_limit_w": None, "max_sm_mhz": 1980}
        assert monitor.energy_j() is None
    assert environment.describe()["gpu_does_not_tell"] == [WATCHED[value]]
    assert [row for row in doctor.doctor() if row.what == "NVML"] == [
        Finding("NVML", f"does not report {WATCHED[value]}", "a run cannot see these", optional=True)
    ]


def test_without_a_gpu_nvml_is_not_opened_and_pynvml_is_not_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus.hide(monkeypatch)
    nvml = FakeNvml()
    nvml.install(monkeypatch)
    with GpuMonitor() as monitor:
        assert (monitor.read(), monitor.describe(), nvml.open) == ([], {}, 0)
        with pytest.raises(ClockError, match="no NVIDIA driver"):
            monitor.lock_clocks(1500)
        memory = GpuMemory(monitor)
        with memory.sampled():
            pass
        assert memory.peak_mib() is None


def test_sampled_memory_counts_even_if_freed_before_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = h200(monkeypatch)
    nvml.used_mib = 1000
    with GpuMonitor() as monitor:
        memory = GpuMemory(monitor)
        nvml.used_mib = 1500
        with memory.sampled():
            nvml.used_mib = 1900
            time.sleep(0.05)  # many times the sampling interval
            nvml.used_mib = 1600
        nvml.used_mib = 1500
        assert memory.peak_mib() == 1900
        nvml.used_mib = 2100
        assert memory.peak_mib() == 2100
    assert memory.peak_mib() is None


def test_clocks_are_locked_and_reset(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = h200(monkeypatch)
    with GpuMonitor() as monitor:
        assert monitor.clocks() == {"sm_mhz": 1000, "application_sm_mhz": 1830}
        monitor.lock_clocks(1500)
        assert nvml.locked == [(1500, 1500)]
        monitor.reset_clocks()
        assert nvml.locked == []
        assert monitor.takes_several_processes()
        nvml.compute_mode = 3  # exclusive process
        assert not monitor.takes_several_processes()
    assert not monitor.takes_several_processes()  # closed, as without NVML
    nvml = h200(monkeypatch, "nvmlDeviceGetSupportedMemoryClocks")  # without a list, any clock is tried
    with GpuMonitor() as monitor:
        monitor.lock_clocks(1499)
    assert nvml.locked == [(1499, 1499)]


@pytest.mark.parametrize(
    ("mhz", "refused", "message"),
    [
        (1985, "", "this GPU has clocks from 345 to 1980 MHz, the nearest is 1980"),
        (1499, "", "this GPU has clocks from 345 to 1980 MHz, the nearest is 1500"),
        (1500, "nvmlDeviceSetGpuLockedClocks", "setting clocks takes an administrator's permission (Insufficient Perm"),
        (1500, "nvmlInit", "NVML does not open this GPU"),
    ],
)
def test_clocks_that_cannot_be_locked(monkeypatch: pytest.MonkeyPatch, mhz: int, refused: str, message: str) -> None:
    nvml = h200(monkeypatch, refused)
    with GpuMonitor() as monitor, pytest.raises(ClockError) as error:
        monitor.lock_clocks(mhz)
    assert str(error.value).startswith(message)
    assert nvml.locked == []


@pytest.fixture
def bus(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty PCI bus, on a machine without a driver."""
    gpus.hide(monkeypatch)
    monkeypatch.setattr(environment, "PCI_DEVICES", tmp_path)
    return tmp_path


def add(bus: Path, name: str, vendor: str, kind: str) -> None:
    (bus / name).mkdir()
    (bus / name / "vendor").write_text(f"{vendor}\n")
    (bus / name / "class").write_text(f"{kind}\n")


def test_hidden_gpus_are_shown_again(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus.show(monkeypatch)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert how_to_get_gpu() == "To show its GPUs: `unset CUDA_VISIBLE_DEVICES`"
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert "`nvidia-smi`" in (how_to_get_gpu() or "")
    gpus.show(monkeypatch, gpus.H200)
    assert how_to_get_gpu() is None


def test_a_gpu_without_a_driver_gets_one(bus: Path) -> None:
    add(bus, "0000:01:00.0", "0x10de", "0x030200")
    assert "`sudo ubuntu-drivers install`" in (how_to_get_gpu() or "")


def test_a_machine_without_a_gpu_is_told_to_use_another(bus: Path) -> None:
    add(bus, "0000:01:00.0", "0x8086", "0x030000")  # another vendor's
    add(bus, "0000:02:00.0", "0x10de", "0x040300")  # sound
    (bus / "0000:03:00.0").mkdir()  # gone meanwhile
    assert (how_to_get_gpu() or "").startswith("This machine has no NVIDIA GPU")
    assert (how_to_get_gpu() or "").endswith("`make ladder`")
