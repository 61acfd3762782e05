"""Child processes: they end with their parent, and what they leave behind ends with them."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36  # linux/prctl.h
GRACE_S = 0.5  # for processes that end by themselves when the one that started them has ended
KILL_LIMIT_S = 5.0  # a process that waits for a device may not even be killed
POLL_S = 0.01


def die_with_parent(parent: int | None = None) -> None:
    """Ask Linux to kill this process when its parent ends: an orphan would disturb the next run's measurements.

    `parent` is the id of the process that started this one. If that has ended already, too early for Linux to tell,
    this process ends at once.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if parent is not None and os.getppid() != parent:
            os._exit(1)


def adopt_orphans() -> None:
    """From now on, a descendant whose parent ends becomes a child of this process, even in a session of its own."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)


def kill_group(leader: int) -> None:
    """Kill the process group of `leader`; the group may have ended already."""
    with suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)


def end_orphans(leader: int) -> list[str]:
    """End all children of this process: what the group of `leader` left behind; returns the names of those that stayed.

    They have a moment to end by themselves. The group is then killed without a word, since its processes end with their
    leader anyway; a process that left the group stayed on purpose, and is named.
    """
    _wait_for_children(GRACE_S)
    kill_group(leader)
    _wait_for_children(GRACE_S)
    stayed: dict[int, str] = {}
    deadline = time.monotonic() + KILL_LIMIT_S
    while (processes := children()) and time.monotonic() < deadline:
        stayed |= processes
        for child in processes:
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        _wait_for_children(POLL_S)  # killed ones may have had children, which are now ours
    return list(stayed.values())


def children() -> dict[int, str]:
    """The names of this process's children by their ids; empty without `/proc`."""
    return {process: name for process, (name, parent) in running().items() if parent == os.getpid()}


def running() -> dict[int, tuple[str, int]]:
    """The name and the parent of each process by its id; empty without `/proc`."""
    processes = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has just ended
            before, _, after = stat.read_text(errors="replace").rpartition(")")
            processes[int(stat.parent.name)] = before.partition("(")[2], int(after.split()[1])
    return processes


def _wait_for_children(limit_s: float) -> None:
    """Reap children until there are none, or the time is up."""
    deadline = time.monotonic() + limit_s
    with suppress(ChildProcessError):  # there is none
        while True:
            child, _ = os.waitpid(-1, os.WNOHANG)
            if child == 0:
                if time.monotonic() >= deadline:
                    return
                time.sleep(POLL_S)
