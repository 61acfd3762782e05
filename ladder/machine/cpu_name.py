"""The name of the host's processor: on x86 Linux tells it, on ARM it gives the numbers of maker and part alone.

The numbers are those of Linux's arch/arm64/include/asm/cputype.h and of util-linux's lscpu.
"""

from __future__ import annotations

import platform
import re
from pathlib import Path

CPUINFO = Path("/proc/cpuinfo")
UNKNOWN = "unknown"
MAKERS = {
    "0x41": "ARM", "0x43": "Cavium", "0x46": "Fujitsu", "0x48": "HiSilicon", "0x4e": "NVIDIA", "0x51": "Qualcomm",
    "0x61": "Apple", "0x70": "Phytium", "0xc0": "Ampere",
}  # fmt: skip
PARTS = {
    ("0x41", "0xd03"): "Cortex-A53", ("0x41", "0xd05"): "Cortex-A55", ("0x41", "0xd07"): "Cortex-A57",
    ("0x41", "0xd08"): "Cortex-A72", ("0x41", "0xd0b"): "Cortex-A76", ("0x41", "0xd41"): "Cortex-A78",
    ("0x41", "0xd42"): "Cortex-A78AE", ("0x41", "0xd85"): "Cortex-X925", ("0x41", "0xd87"): "Cortex-A725",
    ("0x41", "0xd0c"): "Neoverse-N1", ("0x41", "0xd49"): "Neoverse-N2", ("0x41", "0xd8e"): "Neoverse-N3",
    ("0x41", "0xd40"): "Neoverse-V1", ("0x41", "0xd4f"): "Neoverse-V2", ("0x41", "0xd84"): "Neoverse-V3",
    ("0x43", "0x0af"): "ThunderX2", ("0x46", "0x001"): "A64FX", ("0x48", "0xd01"): "Kunpeng-920",
    ("0x70", "0x662"): "FTC662", ("0x70", "0x663"): "FTC663",
    ("0xc0", "0xac3"): "Ampere-1", ("0xc0", "0xac4"): "Ampere-1a",
}  # fmt: skip


def cpu_name(cpuinfo: Path = CPUINFO) -> str:
    """The processor's model name, or the names of its kinds of core, as `ARM Cortex-X925 + ARM Cortex-A725`."""
    try:
        text = cpuinfo.read_text()
    except OSError:
        text = ""
    if named := re.search(r"^model name\s*: (.+)$", text, re.MULTILINE):
        return named[1]
    numbers = re.findall(r"^CPU implementer\s*: (\w+)$(?:\n.+)*?\nCPU part\s*: (\w+)$", text, re.MULTILINE)
    cores = [f"{MAKERS.get(maker, maker)} {PARTS.get((maker, part), part)}" for maker, part in dict.fromkeys(numbers)]
    return " + ".join(cores) or platform.processor() or UNKNOWN
