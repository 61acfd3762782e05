"""Processes take turns on a device. Those that launch many small kernels at once slow each other down many times."""

from __future__ import annotations

import fcntl
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Self


class Turn:
    """A context that one process at a time is in; a process may enter it again inside. Its end gives the turn back."""

    def __init__(self, file: Path) -> None:
        self._path, self._depth = file, 0
        self._file: IO[str] | None = None

    def __enter__(self) -> Self:
        """Wait for the turn."""
        if self._file is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            file = self._path.open("w")
            with suppress(OSError):  # this file system has no locks
                fcntl.flock(file, fcntl.LOCK_EX)
            self._file = file
        self._depth += 1
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give the turn back."""
        self._depth -= 1
        if not self._depth and self._file is not None:
            self._file.close()  # which unlocks it
            self._file = None
