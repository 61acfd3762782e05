"""A process's turn to have the machine to itself.

Stages prepare side by side, and one at a time is measured. What is chosen by timing, such as the fastest of several
kernels, is chosen in the turn of its process: beside others the choice would be poor.
"""

from __future__ import annotations

from collections.abc import Callable


def _at_once() -> None:
    """Outside of a run, every process has its turn."""


_wait: Callable[[], None] = _at_once


def await_turn() -> None:
    """Return when no other process of the run works. Call it before timing anything while preparing."""
    _wait()


def grant_turns_by(wait: Callable[[], None]) -> None:
    """Have `await_turn` call this function in this process from now on; it must return at once the second time."""
    global _wait
    _wait = wait
