"""Names of processors, from made-up files of `/proc`."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from ladder.machine.cpu_name import cpu_name


def core(number: int, maker: str, part: str) -> str:
    return (
        f"processor\t: {number}\nBogoMIPS\t: 50.00\nFeatures\t: fp asimd\nCPU implementer\t: {maker}\n"
        f"CPU architecture: 8\nCPU variant\t: 0x3\nCPU part\t: {part}\nCPU revision\t: 1\n\n"
    )


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("processor\t: 0\nmodel name\t: AMD EPYC 9B14\nflags\t: avx2\n\nprocessor\t: 1\n", "AMD EPYC 9B14"),
        (core(0, "0x41", "0xd4f") + core(1, "0x41", "0xd4f"), "ARM Neoverse-V2"),  # Grace, Graviton4
        (core(0, "0x41", "0xd87") + core(1, "0x41", "0xd85"), "ARM Cortex-A725 + ARM Cortex-X925"),  # DGX Spark
        (core(0, "0xc0", "0xac3"), "Ampere Ampere-1"),
        (core(0, "0x41", "0xfff"), "ARM 0xfff"),
        (core(0, "0x99", "0x123"), "0x99 0x123"),
    ],
)
def test_a_processor_has_a_name(tmp_path: Path, text: str, name: str) -> None:
    (tmp_path / "cpuinfo").write_text(text)
    assert cpu_name(tmp_path / "cpuinfo") == name


def test_without_names_and_numbers_python_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "processor", lambda: "riscv64")
    assert cpu_name(tmp_path / "absent") == "riscv64"
    monkeypatch.setattr(platform, "processor", str)
    assert cpu_name(tmp_path / "absent") == "unknown"
