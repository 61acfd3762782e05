"""One run a folder: two would write each other's results away."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from common.errors import UsageError


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Keep every other run out of the folder for as long as this one lasts, however it ends.

    The folder itself is locked, so that nothing is left behind; and Linux lets go when the process is gone, so that a
    killed run keeps nobody out. Raises UsageError where another run has it. A folder that is not there needs no lock.
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
    except OSError:  # a file system without locks
        pass
    try:
        yield
    finally:
        os.close(descriptor)
