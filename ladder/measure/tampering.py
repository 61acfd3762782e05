"""Whether a stage has replaced what it is measured by.

A stage is a guest in the harness's process, and Python lets a guest rearrange the furniture: a clock that runs slower,
a fence that does not wait. What the harness measures with is remembered before a stage is imported, and looked at after
every run. Who is out to deceive finds ways that leave no trace; docs/method.md says so.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import CodeType, ModuleType


class Originals:
    """The functions, the classes and their methods of some modules as they were."""

    def __init__(self, modules: Iterable[ModuleType]) -> None:
        owners = [owner for module in modules for owner in (module, *_classes_of(module))]
        self._seen = [
            (owner, name, value, _code(value))
            for owner in owners
            for name, value in vars(owner).items()
            if callable(value)
        ]

    def check(self) -> None:
        """Raise TamperedError where one is another now."""
        for owner, name, value, code in self._seen:
            now = vars(owner).get(name)
            if now is not value or _code(now) is not code:
                raise TamperedError(f"the stage replaced {owner.__name__.rpartition('.')[2]}.{name}, which measures it")


class TamperedError(Exception):
    """A stage has laid hands on the harness."""


def _classes_of(module: ModuleType) -> list[ModuleType | type]:
    """The classes that the module defines."""
    return [value for value in vars(module).values() if isinstance(value, type) and value.__module__ == module.__name__]


def _code(value: object) -> CodeType | None:
    """What a function of Python's own does; None for a class, or a function of C."""
    code = getattr(value, "__code__", None)
    return code if isinstance(code, CodeType) else None
