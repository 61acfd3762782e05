"""Detects a stage that replaced what measures it.

A stage runs in the harness's process, where Python lets it replace anything: the clock by a slower one, the fence by
one that does not wait, a constant by a larger one. All of it is recorded before the stage is imported and compared
after every run and before the result is written. A determined cheat can evade this, as docs/method.md admits.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Iterator
from copy import copy
from types import ModuleType
from typing import Any

# Of Python's own names those that the harness calls: libraries may replace others, such as `__import__`.
BUILTINS = ("float", "int", "isinstance", "len", "list", "max", "min", "range", "sorted", "sum", "tuple", "zip")
ZONE = ("altzone", "daylight", "timezone", "tzname")  # of the local time, which a library may set
Owner = ModuleType | type


class Originals:
    """The names of some modules and of the classes that they define, at the time of construction."""

    def __init__(self, modules: Iterable[ModuleType]) -> None:
        owners = [*(owner for module in modules for owner in _owners(module))]
        named = [(owner, name) for owner in owners for name in vars(owner) if _counts(owner, name)]
        self._seen = [(owner, name, _state(owner, name)) for owner, name in named]
        self._seen += [(builtins, name, _state(builtins, name)) for name in BUILTINS]

    def check(self) -> None:
        """Raise TamperedError if any of them has been replaced."""
        for owner, name, state in self._seen:
            if _state(owner, name) != state:
                raise TamperedError(
                    f"the stage replaced {owner.__name__.rpartition('.')[2]}.{name}, which measures it; leave it alone"
                )


class TamperedError(Exception):
    """A stage replaced a function or a constant of the harness."""


class _Same:
    """A value that equals itself alone, and is kept: no later one can be taken for it."""

    def __init__(self, value: object) -> None:
        self._value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self._value is other._value

    __hash__ = None  # type: ignore[assignment]


def _owners(module: ModuleType) -> Iterator[Owner]:
    """The module, and the classes defined in it."""
    yield module
    for value in vars(module).values():
        if isinstance(value, type) and value.__module__ == module.__name__:
            yield value


def _counts(owner: Owner, name: str) -> bool:
    """Whether a change means harm: Python itself keeps accounts in a module's special names, and in some of a class."""
    if isinstance(owner, ModuleType):
        return not name.startswith("__") and name not in ZONE
    return callable(vars(owner)[name]) or not name.startswith("_")


def _state(owner: Owner, name: str) -> list[Any]:
    """The value, what a function of Python consists of, and what a container holds."""
    value = vars(owner).get(name)
    state: list[Any] = [_Same(value)]
    function = getattr(value, "__func__", value)  # of a class or static method
    for part in ("__code__", "__defaults__", "__kwdefaults__", "__closure__"):
        state.append(_Same(getattr(function, part, None)))
    if isinstance(value, dict | list | set):
        state.append(copy(value))
    return state
