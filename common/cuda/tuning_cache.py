"""Measured choices for this GPU, kept on disk for later processes.

Measuring takes time, and two processes may measure different winners; their times would then differ by chance. With
the stored choice all processes do the same.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from typing import Generic, TypeVar

import msgspec

from common.cache import cache_folder
from common.files import atomic_write

SWITCH_TIME_RATIO = 0.98  # a later candidate wins below this ratio to an earlier one's time; a smaller gain is noise

Value = TypeVar("Value")


def first_fastest(times: Sequence[float]) -> int:
    """The index of the shortest time; an earlier one wins unless a later one is clearly shorter."""
    best = 0
    for index, time in enumerate(times):
        if time < SWITCH_TIME_RATIO * times[best]:
            best = index
    return best


class TuningCache(Generic[Value]):
    """Values of one type by purpose, in one file a subject, for example `cuBLASLt 13.1 on NVIDIA H200`."""

    def __init__(self, subject: str, value_type: type[Value]) -> None:
        self._file = cache_folder("tuning") / f"{re.sub(r'[^a-z0-9.]+', '-', subject.lower())}.json"
        self._type = value_type
        self._values = self._load()

    def get(self, purpose: str) -> Value | None:
        """The value that any process stored for this purpose."""
        return self._values.get(purpose)

    def reload(self) -> None:
        """Take over what other processes have stored since."""
        self._values = {**self._values, **self._load()}

    def keep(self, purpose: str, value: Value) -> None:
        """Store a value; if the disk refuses, for this process only."""
        self._values = {**self._load(), **self._values, purpose: value}
        with contextlib.suppress(OSError):
            self._file.parent.mkdir(parents=True, exist_ok=True)
            atomic_write(self._file, msgspec.json.format(msgspec.json.encode(self._values)))

    def _load(self) -> dict[str, Value]:
        """The file's values; none if it is missing or unreadable."""
        try:
            return msgspec.json.decode(self._file.read_bytes(), type=dict[str, self._type])  # type: ignore[name-defined]
        except (OSError, ValueError, msgspec.MsgspecError):  # missing, damaged, or of another type
            return {}


class Choices(TuningCache[int]):
    """Indices of chosen candidates."""

    def __init__(self, subject: str) -> None:
        super().__init__(subject, int)
