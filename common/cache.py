"""Folders that outlive a run: where downloads and compiled kernels are kept, and paths as a user writes them."""

from __future__ import annotations

import os
from pathlib import Path

from common.errors import UsageError


def cache_folder(name: str) -> Path:
    """The folder of that name in `$LADDER_CACHE_DIR`, or else among the user's caches; it may not exist yet.

    A user without a home gets one under the temporary files.
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


def at_home(path: str | Path, what: str) -> Path:
    """The path with `~` and `~name` made out; UsageError, with `what` asked for it, where nobody has that home."""
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise UsageError(f"{what} {path}: nobody has that home; write the whole path") from error
