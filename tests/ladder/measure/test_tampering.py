"""Whatever a stage replaces in the harness's modules is named."""

from __future__ import annotations

import builtins
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from ladder.measure.tampering import Originals, TamperedError


def test_the_local_time_may_be_another_zone_s(monkeypatch: pytest.MonkeyPatch) -> None:
    originals = Originals([time])
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        originals.check()
    finally:
        monkeypatch.undo()
        time.tzset()


SOURCE = """
LIMIT, ADDRESS, NAMES = 0.5, "here", {"begin": b"begin"}

def fence(wait=True):
    return wait

def around():
    counted = 0
    return lambda: counted

nothing = around()

class Run:
    slack = 0.1

    def __init__(self):
        pass

    @classmethod
    def of(cls):
        return cls()
"""


@pytest.fixture
def module() -> Any:
    made = ModuleType("made")
    exec(SOURCE, made.__dict__)
    return made


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda module: setattr(module, "LIMIT", 5.0), "made.LIMIT"),
        (lambda module: setattr(module, "ADDRESS", "there"), "made.ADDRESS"),
        (lambda module: module.NAMES.update(begin=b"end"), "made.NAMES"),
        (lambda module: setattr(module, "fence", lambda: None), "made.fence"),
        (lambda module: setattr(module.fence, "__code__", (lambda wait: None).__code__), "made.fence"),
        (lambda module: setattr(module.fence, "__defaults__", (False,)), "made.fence"),
        (lambda module: setattr(module.Run, "__init__", lambda self: None), "Run.__init__"),
        (lambda module: setattr(module.Run, "slack", 9.0), "Run.slack"),
        (lambda module: setattr(module.Run.of.__func__, "__code__", (lambda cls: None).__code__), "Run.of"),
        (lambda module: delattr(module, "LIMIT"), "made.LIMIT"),
    ],
)
def test_a_change_is_named(module: Any, change: Callable[[Any], None], named: str) -> None:
    module.Run.__module__ = "made"
    originals = Originals([module])
    originals.check()
    change(module)
    with pytest.raises(TamperedError, match=f"the stage replaced {named}, which measures it"):
        originals.check()


def test_a_builtin_is_watched_and_a_new_name_is_not_a_change(module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    originals = Originals([module])
    module.another = 5
    originals.check()
    with monkeypatch.context() as patched:
        patched.setattr(builtins, "zip", lambda *_, **__: iter(()))
        with pytest.raises(TamperedError, match=r"builtins\.zip"):
            originals.check()
