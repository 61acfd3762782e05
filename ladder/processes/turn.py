"""Processes take turns on a device. Those that launch many small kernels at once slow each other down many times."""

from __future__ import annotations

import fcntl
from pathlib import Path
from types import TracebackType
from typing import Self


class Turn:
    """A context that one process at a time is in; a process may enter it again inside. Its end gives the turn back."""

    def __init__(self, file: Path) -> None:
        self._file = file.open("w")
        self._depth = 0

    def __enter__(self) -> Self:
        """Wait for the turn."""
        if not self._depth:
            fcntl.flock(self._file, fcntl.LOCK_EX)
        self._depth += 1
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give the turn back."""
        self._depth -= 1
        if not self._depth:
            fcntl.flock(self._file, fcntl.LOCK_UN)
