"""Locks a run's folder: two runs in one folder would overwrite each other's results."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from common.errors import UsageError

EXCLUSIVE = fcntl.LOCK_EX | fcntl.LOCK_NB


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Hold an exclusive lock on the folder inside the context; raises UsageError if another run holds it.

    The lock is on the folder itself, so no lock file remains, and Linux releases it even if the run is killed. NFS
    locks only files, for all its hosts: there the lock is on `.lock` in the folder. A folder that does not exist needs
    no lock.
    """
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        yield
        return
    with ExitStack() as held:
        held.callback(os.close, descriptor)
        try:
            fcntl.flock(descriptor, EXCLUSIVE)
        except BlockingIOError:
            raise _refused(folder) from None
        except OSError:
            with suppress(OSError):  # this file system has no locks at all
                file = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
                held.callback(os.close, file)
                try:
                    fcntl.flock(file, EXCLUSIVE)
                except BlockingIOError:
                    raise _refused(folder) from None
        yield


def _refused(folder: Path) -> UsageError:
    return UsageError(f"{folder}: another run is writing there; wait for it, or choose another --out")
