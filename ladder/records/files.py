"""Writing files that a reader finds whole."""

from __future__ import annotations

from pathlib import Path


def atomic_write(path: Path, text: str) -> None:
    """Write a file so that a reader finds the old text or the new one, never a part of it."""
    temporary = path.with_name(path.name + ".part")
    try:
        temporary.write_text(text, encoding="utf-8", newline="\n")
        temporary.replace(path)
    except OSError:  # a full disk, above all, which needs no half of a file
        temporary.unlink(missing_ok=True)
        raise
