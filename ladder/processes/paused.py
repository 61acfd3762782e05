"""Stops processes for a while, so that what another one measures is not disturbed."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def paused(leaders: Iterable[int]) -> Iterator[None]:
    """Stop all processes below these for the length of the block; without `/proc`, none."""
    leaders, stopped = set(leaders), set[int]()
    try:
        while new := _below(leaders) - stopped:  # one that was not stopped yet may have started others
            for process in new:
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGSTOP)
            stopped |= new
        yield
    finally:
        for process in stopped:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGCONT)


def _below(leaders: set[int]) -> set[int]:
    """The ids of all processes that these started, and of those that they started in turn."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parents[int(stat.parent.name)] = int(stat.read_text(errors="replace").rpartition(")")[2].split()[1])
    found: set[int] = set()
    while new := {process for process, parent in parents.items() if parent in leaders | found} - found:
        found |= new
    return found
