"""Waits for what a running process prints or does."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import IO


def read_until(stream: IO[str], words: str) -> str:
    """What a process has printed up to these words, in a line that may have no end yet."""
    seen = ""
    while words not in seen:
        letter = stream.read(1)
        assert letter, f"ended before {words}: {seen}"
        seen += letter
    return seen


def wait_until(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def is_running(process: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        return " Z " not in Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False
