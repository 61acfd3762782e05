"""Choices by timing: made in the turn of a process, and the same in all processes.

Stages prepare side by side, and one at a time is measured. What is chosen by timing, such as the fastest of several
kernels, is chosen in the turn of its process: beside others the choice would be poor.

Two processes may still time different winners, and a stage's times would then differ by chance. So a choice is kept. On
a GPU it is kept on disk for later runs, since measuring takes time (`TuningCache`). On the CPU the next run times anew,
since what a busy host decided must not last: the harness hands a stage's choices from one of its processes to the next
(`shared_choice`), so that no stage can make another one's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

import msgspec

from common.cache import cache_folder
from common.files import atomic_write

SWITCH_TIME_RATIO = 0.98  # a later candidate wins below this ratio to an earlier one's time; a smaller gain is noise


def _at_once() -> None:
    """Outside of a run, every process has its turn."""


_wait: Callable[[], None] = _at_once
_shared: dict[str, int] | None = None  # the choices of the stage, in a run
_searches = False


def await_turn() -> None:
    """Return when no other process of the run works. Call it before timing anything while preparing."""
    _wait()


def grant_turns_by(wait: Callable[[], None]) -> None:
    """Have `await_turn` call this function in this process from now on; it must return at once the second time."""
    global _wait
    _wait = wait


def let_search() -> None:
    """Let stages of this process try many kernels, for minutes, where a rule gives one at once."""
    global _searches
    _searches = True


def may_search() -> bool:
    """Whether `let_search` was called."""
    return _searches


def first_fastest(times: Sequence[float]) -> int:
    """The index of the shortest time; an earlier one wins unless a later one is clearly shorter."""
    best = 0
    for index, time in enumerate(times):
        if time < SWITCH_TIME_RATIO * times[best]:
            best = index
    return best


def share_choices(earlier: Mapping[str, int]) -> dict[str, int]:
    """Begin with the choices of the stage's earlier processes. What is returned will have those of this one as well."""
    global _shared
    _shared = dict(earlier)
    return _shared


def shared_choice(name: str, choose: Callable[[], int]) -> int:
    """The choice of this name that an earlier process of the run made; else `choose` is called, and its choice is kept.

    Outside of a run, every process chooses for itself.
    """
    if _shared is None:
        return choose()
    if name not in _shared:
        _shared[name] = choose()
    return _shared[name]


class TuningCache:
    """Choices by purpose, in one file a subject, for example `cuBLASLt 13.1 on NVIDIA H200`."""

    def __init__(self, subject: str) -> None:
        self._file = cache_folder("tuning") / f"{re.sub(r'[^a-z0-9.]+', '-', subject.lower())}.json"
        self._values = self._load()

    def get(self, purpose: str) -> int | None:
        """The choice that any process stored for this purpose."""
        return self._values.get(purpose)

    def reload(self) -> None:
        """Take over what other processes have stored since."""
        self._values = {**self._values, **self._load()}

    def keep(self, purpose: str, value: int) -> int:
        """Store a choice; if the disk refuses, for this process only. Returns another one that was stored meanwhile."""
        stored = self._load()
        if stored.get(purpose) in (None, self._values.get(purpose)):  # none, or one that `get` gave and does not fit
            stored[purpose] = value
        self._values |= stored
        with suppress(OSError):
            self._file.parent.mkdir(parents=True, exist_ok=True)
            atomic_write(self._file, msgspec.json.format(msgspec.json.encode(self._values)))
        return self._values[purpose]

    def _load(self) -> dict[str, int]:
        """The file's choices; none if it is missing or unreadable."""
        try:
            return msgspec.json.decode(self._file.read_bytes(), type=dict[str, int])
        except (OSError, ValueError, msgspec.MsgspecError):  # missing, damaged, or of another type
            return {}
