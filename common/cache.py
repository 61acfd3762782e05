"""Cache folders for downloads and compiled kernels, and the expansion of `~` in paths."""

from __future__ import annotations

import os
from pathlib import Path

from common.errors import UsageError


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


def at_home(path: str | Path, what: str) -> Path:
    """Expand `~` and `~name`; UsageError, which names the option `what`, when that user has no home directory."""
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise UsageError(f"{what} {path}: unknown home directory; write the whole path") from error
