"""Reads what a running process prints, line ends or not."""

from __future__ import annotations

from typing import IO


def read_until(stream: IO[str], words: str) -> str:
    """What a process has printed up to these words, in a line that may have no end yet."""
    seen = ""
    while words not in seen:
        letter = stream.read(1)
        assert letter, f"ended before {words}: {seen}"
        seen += letter
    return seen
