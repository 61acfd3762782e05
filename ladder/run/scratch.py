"""A folder for the files that harness and workers exchange: the data set and parameters, gone when the run ends."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import gettempdir, mkdtemp

from common.cache import cache_folder, cache_obstacle, cut_files
from common.errors import UsageError

PREFIX, BEGINNING = "ladder-scratch-", "ladder-begins-"
SPARE_BYTES = 1 << 20  # for jobs, results and traces


@contextmanager
def scratch_folder(out: Path, nbytes: int) -> Iterator[Path]:
    """A new folder with room for so many bytes inside the context: in the temporary folder, the cache, or `out`.

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
        with _environment(_caches_in(folder) if cache_obstacle() else {}):
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
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
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
