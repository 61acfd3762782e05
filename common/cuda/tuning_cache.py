"""What was measured to be the fastest way of doing something on this GPU, kept on disk for the processes to come.

Trying things out takes a while, and two processes that try may choose differently: then a difference between their
times is chance. With what the first one found they all do the same.
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from common.cache import cache_folder

CLEARLY = 0.98  # of the time of one that comes before it: less is noise, and would differ between processes

What = TypeVar("What")


class TuningCache(Generic[What]):
    """What was found, of one type and by what it is for, in one file a subject: `cuBLASLt 13.1 on NVIDIA H200`."""

    def __init__(self, subject: str, what: type[What]) -> None:
        self._file = cache_folder("tuning") / f"{re.sub(r'[^a-z0-9.]+', '-', subject.lower())}.json"
        self._type = what
        self.damaged: Path | None = None  # the file, where it was there and could not be read
        self._found = self._load()

    def get(self, purpose: str) -> What | None:
        """What was found for it, by any process."""
        return self._found.get(purpose)

    def keep(self, purpose: str, found: What) -> None:
        """Keep it; where the disk does not let us, for this process alone."""
        self._found = {**self._load(), **self._found, purpose: found}
        temporary = None
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=self._file.parent, delete=False) as file:
                temporary = Path(file.name)
                file.write(msgspec.json.format(msgspec.json.encode(self._found)))
            temporary.replace(self._file)
        except OSError:
            if temporary is not None:
                temporary.unlink(missing_ok=True)

    def _load(self) -> dict[str, What]:
        """What the file has; nothing where there is none, or none that can be read."""
        try:
            return msgspec.json.decode(self._file.read_bytes(), type=dict[str, self._type])  # type: ignore[name-defined]
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, msgspec.MsgspecError):  # none of ours
            self.damaged = self._file
            return {}


class Choices(TuningCache[int]):
    """The number of the way that was chosen."""

    def __init__(self, subject: str) -> None:
        super().__init__(subject, int)
