"""Checks of times, which other work on this machine can make fail: tests pass them, but for those of the checks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from msgspec.structs import replace

from ladder.records.run import Check
from ladder.run import judge

OF_TIMES = ("verify_timer", "verify_clock", "verify_judged_time")
_judged = False


@contextmanager
def judged_times() -> Iterator[None]:
    """Within this context, a check of times fails as it does for a user."""
    global _judged
    _judged = True
    try:
        yield
    finally:
        _judged = False


@contextmanager
def passed_times() -> Iterator[None]:
    """Within this context, checks of times are made and pass, but for `judged_times`."""
    with pytest.MonkeyPatch.context() as patch:
        for name in OF_TIMES:
            patch.setattr(judge, name, _passing(getattr(judge, name)))
        yield


def _passing(verify: Callable[..., Check]) -> Callable[..., Check]:
    def verified(*seen: object) -> Check:
        check = verify(*seen)
        return check if _judged else replace(check, error=0.0, passed=True)

    return verified
