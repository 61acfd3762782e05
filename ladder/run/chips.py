"""GPUs by name: those with recorded runs, and the data sheets of others, to which times are carried over as a guess.

The numbers of `MODELLED` stand in its recorded runs as well; nothing measured here confirms the others.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from common.errors import UsageError


class Chip(NamedTuple):
    """What the guess needs to know of a GPU."""

    name: str
    memory_gb_s: float  # of its data sheet
    sm: int  # compute capability, such as 90
    multiprocessors: int
    clock_mhz: int  # boosted
    l2_mib: int
    launch_us: float | None = None  # of a kernel from Python, back to back, as `limits` measures it


MODELLED = Chip("H200", 4800, 90, 132, 1980, 60)  # to whose runs the model of expected times is fitted
CHIPS = (
    Chip("T4", 320, 75, 40, 1590, 4), Chip("A10", 600, 86, 72, 1695, 6), Chip("RTX 3090", 936, 86, 82, 1695, 6),
    Chip("A100", 2039, 80, 108, 1410, 40), Chip("L4", 300, 89, 58, 2040, 48), Chip("L40S", 864, 89, 142, 2520, 96),
    Chip("RTX 4090", 1008, 89, 128, 2520, 72), Chip("H100", 3350, 90, 132, 1980, 50), MODELLED,
    Chip("RTX 5090", 1792, 120, 170, 2407, 96), Chip("B200", 8000, 100, 148, 1965, 126),
)  # fmt: skip
UNKNOWN = Chip("", 0, 80, 108, 1410, 40)  # counts as an A100 but for the limits that the user names
LIMITS = {"--bandwidth": ("GB/s of a GPU's memory", 10, 100_000), "--launch": ("us of a launch from Python", 0.5, 50)}
OTHER_KIND = {"laptop", "mobile", "max", "ti", "super", "d"}  # words after a name that make it another GPU
BLOCK_SHARED_KIB = {75: 64, 80: 163, 86: 99, 89: 99, 90: 227, 100: 227, 120: 99}  # CUDA C++ Programming Guide, table 29


def chip_named(name: str, bandwidth: float | None, launch_us: float | None) -> Chip:
    """The GPU of this name, with the limits that the user gives; UsageError if neither is known, or one is absurd."""
    for option, value in (("--bandwidth", bandwidth), ("--launch", launch_us)):
        words, least, most = LIMITS[option]
        if value is not None and not least <= value <= most:
            raise UsageError(f"{option} {value:g}: the {words}, from {least:g} to {most:,}")
    asked = _words(name)
    fits = [chip for chip in CHIPS if _is_named(chip, asked)]
    if not fits and bandwidth is None:
        near = [chip.name for chip in CHIPS if _words(chip.name)[-1:] == asked[-1:]]
        if near:
            raise UsageError(f'--gpu {name}: not known; did you mean "{near[0]}"?')
        known = ", ".join(chip.name for chip in CHIPS)
        raise UsageError(f"--gpu {name}: not known; add --bandwidth GB/S of its memory, or choose one of {known}")
    chip = max(fits, key=lambda chip: len(chip.name), default=UNKNOWN._replace(name=name))
    return chip._replace(memory_gb_s=bandwidth or chip.memory_gb_s, launch_us=launch_us)


def is_recorded_as(name: str, folder: str) -> bool:
    """Whether a folder such as `h100-80gb-hbm3` holds runs of the GPU of this name, as far as the name tells."""
    asked = _words(name)
    return bool(asked) and _words(folder)[: len(asked)] == asked


def _is_named(chip: Chip, asked: list[str]) -> bool:
    own = _words(chip.name)
    return asked[: len(own)] == own and not OTHER_KIND & {*asked[len(own) :]}


def _words(name: str) -> list[str]:
    """`NVIDIA GeForce RTX 4090` and `rtx4090` as `rtx`, `4090`."""
    model = re.sub(r"(?i)\b(nvidia|geforce|tesla)\b", "", name).strip().lower()
    words = re.findall(r"[a-z]+\d*[a-z]*|\d+[a-z]*", re.sub(r"^rtx[ -]?", "rtx ", model))
    return [str(word) for word in words]
