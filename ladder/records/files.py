"""Writes files atomically."""

from __future__ import annotations

from pathlib import Path


def atomic_write(path: Path, text: str) -> None:
    """Write a text file so that a reader finds the old text or the new one, never part of it; raises OSError."""
    temporary = path.with_name(path.name + ".part")
    try:
        temporary.write_text(text, encoding="utf-8", newline="\n")
        temporary.replace(path)
    except OSError:  # mostly a full disk: leave no partial file on it
        temporary.unlink(missing_ok=True)
        raise
