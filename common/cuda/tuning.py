"""What was measured to be the fastest way of doing something on this GPU, kept on disk for the processes to come.

Trying things out takes a while, and two processes that try may choose differently: then a difference between their
times is chance. With what the first one found they all do the same.
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

import msgspec

from common.cache import cache_folder


class Choices:
    """Choices by what they are for, in one file a subject: `cuBLASLt 13.1 on NVIDIA H200`."""

    def __init__(self, subject: str) -> None:
        self._file = cache_folder("tuning") / f"{re.sub(r'[^a-z0-9.]+', '-', subject.lower())}.json"
        self._choices = self._load()

    def get(self, purpose: str) -> int | None:
        """What was chosen for it, by any process."""
        return self._choices.get(purpose)

    def keep(self, purpose: str, choice: int) -> None:
        """Keep a choice; where the disk does not let us, for this process alone."""
        self._choices = {**self._load(), **self._choices, purpose: choice}
        temporary = None
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=self._file.parent, delete=False) as file:
                temporary = Path(file.name)
                file.write(msgspec.json.format(msgspec.json.encode(self._choices)))
            temporary.replace(self._file)
        except OSError:
            if temporary is not None:
                temporary.unlink(missing_ok=True)

    def _load(self) -> dict[str, int]:
        """What the file has; nothing where there is none, or none that can be read."""
        try:
            return msgspec.json.decode(self._file.read_bytes(), type=dict[str, int])
        except (OSError, ValueError, msgspec.MsgspecError):  # no file, or none of ours
            return {}
