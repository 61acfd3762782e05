"""Cache folders for downloads and compiled kernels, and the expansion of `~` in paths."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from common.errors import UsageError

PROBE_BYTES = 8 << 20  # more than a run adds, but for the compilers of PyTorch and JAX
PICKLES = {".nbi": 2, ".nbc": 1}  # in a file of Numba's: in an index, its version stands before it


def cache_folder(name: str) -> Path:
    """The folder `name` in `$LADDER_CACHE_DIR`, or else in the user's cache folder. It may not exist yet.

    A user without a home directory gets a folder in `/tmp`.
    """
    own = os.environ.get("LADDER_CACHE_DIR")
    if own:
        return at_home(own, "$LADDER_CACHE_DIR") / name
    caches = os.environ.get("XDG_CACHE_HOME")
    try:
        base = Path(caches) if caches else Path.home() / ".cache"
    except RuntimeError:
        base = Path("/tmp")
    return base / "optimisation-ladder" / name


def cache_is_writable() -> bool:
    """Whether compiled code can be kept in the cache; in many containers, nothing can be written there."""
    folder = cache_folder("numba").absolute()
    there = next(place for place in (folder, *folder.parents) if place.exists())
    return there.is_dir() and os.access(there, os.W_OK | os.X_OK)


def cache_obstacle() -> str:
    """Why nothing new can be kept in the cache, in one line with the folder; empty if it can."""
    folder = cache_folder("")
    if not cache_is_writable():
        return f"{folder} cannot be written to"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder, buffering=0) as file:
            left = PROBE_BYTES
            while left:  # a write may stop where the room ends, and the next one says why
                left -= file.write(bytes(left))
    except OSError as error:
        return f"{folder}: {error.strerror}"
    return ""


def cut_files() -> list[Path]:
    """The files of Numba's cache that were cut off: it crashes over each."""
    return [file for file in sorted(cache_folder("numba").rglob("*.nb[ci]")) if not _is_whole(file)]


class _Anything:
    """In place of any class of a pickle."""

    def __init__(self, *args: object, **named: object) -> None:
        pass

    def __setstate__(self, state: object) -> None:
        pass


class _Reader(pickle.Unpickler):
    """Reads a pickle to its end, imports nothing and calls nothing of it."""

    def find_class(self, _module: str, _name: str) -> Any:
        return _Anything


def _is_whole(file: Path) -> bool:
    """Whether a file holds whole pickles."""
    try:
        with file.open("rb") as stream:
            for _ in range(PICKLES[file.suffix]):
                _Reader(stream).load()
    except Exception:  # a broken pickle may raise anything
        return False
    return True


def at_home(path: str | Path, what: str) -> Path:
    """Expand `~` and `~name`; UsageError, which names the option `what`, when that user has no home directory."""
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise UsageError(f"{what} {path}: unknown home directory; write the whole path") from error
