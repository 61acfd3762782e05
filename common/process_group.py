"""Processes that end with the one that started them."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from contextlib import suppress

PR_SET_PDEATHSIG = 1  # linux/prctl.h


def die_with_parent() -> None:
    """Ask Linux to end this process with the harness: an orphan would use the machine that the next run measures."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def kill_group(leader: int) -> None:
    """Kill what is left of the process group of this process, which may have ended already."""
    with suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)
