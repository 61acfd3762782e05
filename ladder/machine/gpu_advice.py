"""How to get a GPU: the command that would make one usable here, by what this machine lacks."""

from __future__ import annotations

import os
from pathlib import Path

from common.cuda import driver

PCI_DEVICES = Path("/sys/bus/pci/devices")
NVIDIA, DISPLAY = "0x10de", "0x03"  # a device's vendor, and the class that GPUs belong to
OLDEST_DRIVER = 525


def how_to_get_gpu() -> str | None:
    """What to do for a usable GPU, a sentence with its command but no full stop; None if there is one."""
    if driver.no_device_reason() is None:
        return None
    if remedy := driver.no_device_remedy():
        return remedy
    if driver.driver_version() is not None:
        if "CUDA_VISIBLE_DEVICES" in os.environ:
            return "To show its GPUs: `unset CUDA_VISIBLE_DEVICES`"
        return "To see what the driver sees: `nvidia-smi`"
    if has_nvidia_gpu():
        return (
            f"This machine has an NVIDIA GPU; install its driver, {OLDEST_DRIVER} or newer "
            "(Ubuntu: `sudo ubuntu-drivers install`), or start the container with `--gpus all`"
        )
    return f"This machine has no NVIDIA GPU; on one with a GPU and driver {OLDEST_DRIVER} or newer: `make ladder`"


def has_nvidia_gpu() -> bool:
    """Whether an NVIDIA GPU is on the PCI bus, which a container shows as well."""
    for device in PCI_DEVICES.glob("*"):
        try:
            vendor, kind = ((device / name).read_text(encoding="ascii") for name in ("vendor", "class"))
        except (OSError, ValueError):
            continue
        if vendor.strip() == NVIDIA and kind.startswith(DISPLAY):
            return True
    return False
