"""Stops processes for a while, so that what another one measures is not disturbed."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

from common.process_group import running


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
    processes, found = running(), set[int]()
    while new := {process for process, (_, parent) in processes.items() if parent in leaders | found} - found:
        found |= new
    return found
