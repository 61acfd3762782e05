"""Ranges for external profilers (NVTX), and the part of the program that they record.

Off by default. A process under a profiler enables them before it makes a trainer; otherwise nothing is wrapped and a
step has no extra work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

Part = TypeVar("Part")

_nvtx: Any = None


def enable() -> None:
    """Emit ranges from now on; ImportError without CuPy, which contains NVTX."""
    global _nvtx
    from cupy.cuda import nvtx

    _nvtx = nvtx


@contextmanager
def recorded() -> Iterator[None]:
    """The section that a profiler controlled by CUDA's profiler API records."""
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
    """The part with a range around each call (`head`, `update.finish`); unchanged if ranges are off."""
    return part if _nvtx is None else _Marked(part, name)  # type: ignore[return-value]


class _Marked:
    """A part with a range around each call."""

    def __init__(self, part: Any, name: str) -> None:
        self._part = part
        self._name = name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with named(self._name):
            return self._part(*args, **kwargs)

    def __getattr__(self, method: str) -> Callable[..., Any]:
        traced = getattr(self._part, method)

        def within(*args: Any, **kwargs: Any) -> Any:
            with named(f"{self._name}.{method}"):
                return traced(*args, **kwargs)

        return within
