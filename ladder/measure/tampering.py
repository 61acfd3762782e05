"""Detects a stage that replaced the functions that measure it.

A stage runs in the harness's process, where Python lets it replace any function: by a slower clock, or a fence that
does not wait. The functions are recorded before the stage is imported and compared after every run. A determined
cheat can evade this; docs/method.md says so.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import CodeType, ModuleType


class Originals:
    """The functions, classes and methods of some modules at the time of construction."""

    def __init__(self, modules: Iterable[ModuleType]) -> None:
        owners = [owner for module in modules for owner in (module, *_classes_of(module))]
        self._seen = [
            (owner, name, value, _code(value))
            for owner in owners
            for name, value in vars(owner).items()
            if callable(value)
        ]

    def check(self) -> None:
        """Raise TamperedError if any of them has been replaced."""
        for owner, name, value, code in self._seen:
            now = vars(owner).get(name)
            if now is not value or _code(now) is not code:
                raise TamperedError(f"the stage replaced {owner.__name__.rpartition('.')[2]}.{name}, which measures it")


class TamperedError(Exception):
    """A stage replaced a function of the harness."""


def _classes_of(module: ModuleType) -> list[ModuleType | type]:
    """The classes defined in the module."""
    return [value for value in vars(module).values() if isinstance(value, type) and value.__module__ == module.__name__]


def _code(value: object) -> CodeType | None:
    """The code of a Python function; None for a class or a C function."""
    code = getattr(value, "__code__", None)
    return code if isinstance(code, CodeType) else None
