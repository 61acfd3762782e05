"""The folder of a run or study, made and locked: two runs in one folder would overwrite each other's results."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime
from itertools import count
from pathlib import Path
from tempfile import TemporaryFile

from common.errors import UsageError

EXCLUSIVE = fcntl.LOCK_EX | fcntl.LOCK_NB
RUNS = Path("runs")


def make_folder(out: Path | None, prefix: str = "") -> Path:
    """Make the folder that the user named, else `runs/PREFIX<time>`; returns it.

    Raises UsageError for a folder that could not keep the results, before anything is measured.
    """
    try:
        folder = out or _new_folder(f"{prefix}{datetime.now():%Y%m%d-%H%M%S}")
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            return folder
    except OSError as error:
        where = out or RUNS
        raise UsageError(f"--out {where}: cannot be written to ({error.strerror}); choose another folder") from error


def forget(folder: Path, logs: Path, *, was_there: bool) -> None:
    """Remove the logs of a run that has nothing to keep, and its folder unless it was there before."""
    shutil.rmtree(logs, ignore_errors=True)
    with suppress(OSError):  # holds something of others
        for path in () if was_there else (folder, *((RUNS,) if folder.parent == RUNS else ())):
            path.rmdir()


def _new_folder(name: str) -> Path:
    """A folder of its own: runs that begin in the same second get `NAME`, `NAME-2` and so on."""
    RUNS.mkdir(exist_ok=True)
    for number in count(1):
        folder = RUNS / (name if number == 1 else f"{name}-{number}")
        try:
            folder.mkdir()
        except FileExistsError:
            continue
        return folder
    raise AssertionError("count() does not end")


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
