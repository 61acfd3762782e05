"""Paths as a user writes them."""

from __future__ import annotations

from pathlib import Path

from common.errors import UsageError


def at_home(path: str | Path, what: str) -> Path:
    """The path with `~` and `~name` made out; UsageError, with `what` asked for it, where nobody has that home."""
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise UsageError(f"{what} {path}: nobody has that home; write the whole path") from error
