"""The sizes of this CPU's caches, as Linux tells them."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

FOLDER = Path("/sys/devices/system/cpu/cpu0/cache")
UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


class Caches(NamedTuple):
    """Bytes of data that each level holds, as its cores see it."""

    l1: int = 32 << 10
    l2: int = 512 << 10
    l3: int = 16 << 20


def caches(folder: Path = FOLDER) -> Caches:
    """The caches of the first core; a level that Linux does not tell has a typical size."""
    sizes: dict[str, int] = {}
    for index in sorted(folder.glob("index*")):
        try:
            level, kind, size = ((index / name).read_text().strip() for name in ("level", "type", "size"))
            if kind != "Instruction":
                sizes[f"l{level}"] = int(size[:-1]) * UNITS[size[-1]] if size[-1] in UNITS else int(size)
        except (OSError, ValueError, IndexError):
            continue
    return Caches(**{name: size for name, size in sizes.items() if name in Caches._fields and size > 0})
