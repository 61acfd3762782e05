"""Locks a run's folder: two runs in one folder would overwrite each other's results."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from common.errors import UsageError


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Hold an exclusive lock on the folder inside the context; raises UsageError if another run holds it.

    The lock is on the folder itself, so no lock file remains, and Linux releases it even if the run is killed. A folder
    that does not exist needs no lock.
    """
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        yield
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise UsageError(f"{folder}: another run is writing there; wait for it, or choose another --out") from None
    except OSError:  # this file system has no locks
        pass
    try:
        yield
    finally:
        os.close(descriptor)
