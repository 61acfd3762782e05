"""The folder of a run or study, made and locked, and one for what harness and workers exchange, gone when it ends."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime
from itertools import count
from pathlib import Path
from tempfile import TemporaryFile, gettempdir, mkdtemp

from common.cache import cache_folder, cache_obstacle, cut_files
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


PREFIX, BEGINNING = "ladder-scratch-", "ladder-begins-"
SPARE_BYTES = 1 << 20  # for jobs, results and traces


@contextmanager
def scratch_folder(out: Path, nbytes: int) -> Iterator[Path]:
    """A new folder with room for `nbytes` bytes inside the context: in the temporary folder, the cache, or `out`.

    It is locked while the run lives, so that a later run knows which folders a killed one has left, and removes them.
    Where the cache cannot be written to, it holds the cache of all processes that start inside the context. Files that
    were cut off leave the cache. Raises UsageError if there is no room.
    """
    parent = _with_room([*_temporary(), cache_folder("scratch"), out], nbytes + SPARE_BYTES).resolve()
    _remove_leftovers(parent)
    beginning = Path(mkdtemp(prefix=BEGINNING, dir=parent))
    lock = os.open(beginning, os.O_RDONLY | os.O_DIRECTORY)
    folder = parent / beginning.name.replace(BEGINNING, PREFIX)
    try:
        with suppress(OSError):  # this file system has no locks: the folder is not removed if the run is killed
            fcntl.flock(lock, fcntl.LOCK_EX)
        beginning.rename(folder)  # only now, so that no other run finds it without its lock
        for file in cut_files():
            file.unlink(missing_ok=True)
        with environment_of(_caches_in(folder) if cache_obstacle() else {}):
            yield folder
    finally:
        for path in (beginning, folder):
            shutil.rmtree(path, ignore_errors=True)
        os.close(lock)


def _temporary() -> list[Path]:
    """The temporary folder, if there is one that can be written to."""
    try:
        return [Path(gettempdir())]
    except FileNotFoundError:
        return []


def _caches_in(folder: Path) -> dict[str, str]:
    """The variables by which we and the libraries that refuse to work without a cache keep it in this folder."""
    unset = {name for name in ("CUPY_CACHE_DIR", "TRITON_CACHE_DIR") if name not in os.environ}
    return {name: str(folder / "cache") for name in ("LADDER_CACHE_DIR", *sorted(unset))}


@contextmanager
def environment_of(variables: Mapping[str, str]) -> Iterator[None]:
    """The environment with these variables inside the context."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


def _with_room(candidates: list[Path], nbytes: int) -> Path:
    """The first folder with room that can be written to; UsageError if there is none."""
    told = []
    for folder in candidates:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            free = shutil.disk_usage(folder).free
            if free >= nbytes and os.access(folder, os.W_OK):
                return folder
            told.append(f"{folder} has {_mib(free)}" if free < nbytes else f"{folder} cannot be written to")
        except OSError as error:
            told.append(f"{folder}: {error.strerror}")
    raise UsageError(
        f"temporary files: no folder has room for {_mib(nbytes)} ({', '.join(told)}); free some, or name one by TMPDIR"
    )


def _mib(nbytes: int) -> str:
    return f"{nbytes / 2**20:,.1f} MiB"


def _remove_leftovers(parent: Path) -> None:
    """Remove the folders of killed runs, whose locks have ended with them."""
    for leftover in parent.glob(f"{PREFIX}*"):
        with suppress(OSError):  # in use, or another user's
            lock = os.open(leftover, os.O_RDONLY | os.O_DIRECTORY)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(leftover, ignore_errors=True)
            finally:
                os.close(lock)
