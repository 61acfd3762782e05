"""The cores that this process may use, by its affinity and the quotas of its control groups.

Sources: cgroups(7); Linux's Documentation/admin-guide/cgroup-v2.rst (`cpu.max`, `cpu.stat`), scheduler/sched-bwc.rst.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import NamedTuple

PROC = Path("/proc/self")
NO_LIMIT = "max"  # of v2; v1 writes -1
THROTTLED_UNITS = {"throttled_usec": 1e6, "throttled_time": 1e9}  # of v2 and v1, per second


class Hierarchy(NamedTuple):
    """A mounted tree of control groups: its controllers (none for v2), the group at its top, and where it lies."""

    controllers: frozenset[str]
    top: PurePosixPath
    mounted: Path


def cores_allowed() -> int:
    """The number of cores that this process may run on, by its affinity."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def usable_cores(proc: Path = PROC) -> int:
    """The number of threads to start: the cores allowed, fewer by the smallest quota; at least 1.

    Quotas are those of this process's control groups and of all above them, of cgroup v1 and v2. Two and a half cores
    are worth two threads.
    """
    return max(1, min([cores_allowed(), *map(int, _quotas(proc))]))


def _quotas(proc: Path) -> Iterator[float]:
    """Cores by every quota that holds for the process whose folder in `/proc` is given."""
    for folder in control_groups(proc):
        yield from _quota(folder)


def control_groups(proc: Path = PROC) -> Iterator[Path]:
    """The folders of the control groups that can limit a process's CPU time, each before the one above it."""
    hierarchies = list(_hierarchies(proc))
    for controllers, group in _memberships(proc):
        for hierarchy in hierarchies:
            if hierarchy.controllers == controllers or "cpu" in hierarchy.controllers & controllers:
                yield from _upwards(hierarchy, group)


def throttled_s(groups: Iterable[Path]) -> float:
    """Seconds for which quotas held these control groups back, summed over cores; 0 where Linux does not report it."""
    held_s = 0.0
    for folder in groups:
        for line in _lines(folder / "cpu.stat"):
            name, _, number = line.partition(" ")
            if name in THROTTLED_UNITS and number.isdigit():
                held_s += int(number) / THROTTLED_UNITS[name]
    return held_s


def _memberships(proc: Path) -> Iterator[tuple[frozenset[str], PurePosixPath]]:
    """Controllers and group of this process in each hierarchy; v2 has no controllers here."""
    for line in _lines(proc / "cgroup"):
        with suppress(ValueError):
            _, controllers, group = line.split(":", 2)
            yield frozenset(filter(None, controllers.split(","))), PurePosixPath(group)


def _hierarchies(proc: Path) -> Iterator[Hierarchy]:
    """The mounted hierarchies that can limit CPU time."""
    for line in _lines(proc / "mountinfo"):
        with suppress(ValueError, IndexError):
            mount, _, filesystem = line.partition(" - ")
            kind, _, options = filesystem.split(" ")
            top, mounted = (field.replace(r"\040", " ") for field in mount.split(" ")[3:5])
            if kind == "cgroup2":
                yield Hierarchy(frozenset(), PurePosixPath(top), Path(mounted))
            elif kind == "cgroup" and "cpu" in options.split(","):
                yield Hierarchy(frozenset({"cpu"}), PurePosixPath(top), Path(mounted))


def _upwards(hierarchy: Hierarchy, group: PurePosixPath) -> Iterator[Path]:
    """The folders of a group and of those above it; the top alone where the group lies outside of what is mounted."""
    inside = group.relative_to(hierarchy.top) if group.is_relative_to(hierarchy.top) else PurePosixPath()
    for folder in (inside, *inside.parents):
        yield hierarchy.mounted / folder


def _quota(folder: Path) -> Iterator[float]:
    """The cores that a group may keep busy; nothing where it has no quota."""
    with suppress(OSError, ValueError, ZeroDivisionError):
        allowed, period = (folder / "cpu.max").read_text().split()
        if allowed != NO_LIMIT:
            yield int(allowed) / int(period)
    with suppress(OSError, ValueError, ZeroDivisionError):
        allowed, period = ((folder / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
        if int(allowed) > 0:
            yield int(allowed) / int(period)


def _lines(file: Path) -> list[str]:
    """A file's lines; none without it."""
    try:
        return file.read_text().splitlines()
    except OSError:
        return []
