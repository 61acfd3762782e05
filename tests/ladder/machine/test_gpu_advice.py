from __future__ import annotations

from pathlib import Path

import pytest

from ladder.machine import gpu_advice
from ladder.machine.gpu_advice import how_to_get_gpu
from tests.ladder import gpus


@pytest.fixture
def bus(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty PCI bus, on a machine without a driver."""
    gpus.hide(monkeypatch)
    monkeypatch.setattr(gpu_advice, "PCI_DEVICES", tmp_path)
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
