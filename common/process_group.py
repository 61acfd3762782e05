"""Child processes that end with their parent."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from contextlib import suppress

PR_SET_PDEATHSIG = 1  # linux/prctl.h


def die_with_parent() -> None:
    """Ask Linux to kill this process when its parent ends: an orphan would disturb the next run's measurements."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def kill_group(leader: int) -> None:
    """Kill the process group of `leader`; the group may have ended already."""
    with suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)
