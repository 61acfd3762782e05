"""What a profiler from outside is told: which part of the program to record, and what the code is doing (NVTX).

Off until a process that runs under a profiler switches them on, before it makes a trainer: where they are off, nothing
is wrapped, and a step does not even ask.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

Part = TypeVar("Part")

_nvtx: Any = None


def enable() -> None:
    """Mark ranges from now on; raises ImportError without CuPy, which brings NVTX."""
    global _nvtx
    from cupy.cuda import nvtx

    _nvtx = nvtx


@contextmanager
def recorded() -> Iterator[None]:
    """What a profiler that waits for CUDA's profiler API is to record."""
    from cupy.cuda import profiler

    profiler.start()
    try:
        yield
    finally:
        profiler.stop()


@contextmanager
def named(name: str) -> Iterator[None]:
    """A range around a block of code."""
    if _nvtx is None:
        yield
        return
    _nvtx.RangePush(name)
    try:
        yield
    finally:
        _nvtx.RangePop()


def marked(part: Part, name: str) -> Part:
    """The same part, each of whose calls is a range: `head`, `update.finish`; just the part where ranges are off."""
    return part if _nvtx is None else _Marked(part, name)  # type: ignore[return-value]


class _Marked:
    """A part that says when it is at work."""

    def __init__(self, part: Any, name: str) -> None:
        self._part = part
        self._name = name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with named(self._name):
            return self._part(*args, **kwargs)

    def __getattr__(self, method: str) -> Callable[..., Any]:
        found = getattr(self._part, method)

        def within(*args: Any, **kwargs: Any) -> Any:
            with named(f"{self._name}.{method}"):
                return found(*args, **kwargs)

        return within
