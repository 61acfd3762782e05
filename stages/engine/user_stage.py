"""A stage from a file of the user's own, found by its path where ours are found by the name of their module.

Everything that can be wrong with such a file is one line, since whoever wrote it is still writing it.
"""

from __future__ import annotations

import importlib.util
import re
import sys
import traceback
from pathlib import Path
from typing import get_args

from common.errors import UsageError
from stages.engine.earlier_names import allow_earlier_names
from stages.engine.recipe import Precision
from stages.engine.stage import Doc, Group, Stage

ATTRIBUTE = "STAGE"
NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")  # it names folders and logs, and stands in lists with commas and dots
TAKEN = ("all", "ladder", "references")  # what `--stages` takes for something else


def load_file(path: Path) -> tuple[Stage, Doc]:
    """The `STAGE` of a Python file, and what of Why, Change, Expect and Found its docstring has.

    The file may import what lies beside it. Raises UsageError for a file that is missing, raises on import, or has no
    stage.
    """
    if not path.is_file():
        raise UsageError(f"--stage-file {path}: {'not a file' if path.exists() else 'no such file'}; name a .py file")
    if path.suffix != ".py":
        raise UsageError(f"--stage-file {path}: not a .py file; name one that ends in a line such as STAGE = ...")
    name = f"stage_file_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look there
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))  # last, so that no file there hides one of ours
    allow_earlier_names()
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise UsageError(f"--stage-file {path}: cannot be imported: {_where_and_what(error, path)}; mend it") from error
    stage = getattr(module, ATTRIBUTE, None)
    if not isinstance(stage, Stage):
        has = "no STAGE" if stage is None else f"a STAGE that is {type(stage).__name__}"
        raise UsageError(f"--stage-file {path}: has {has}; end it in STAGE = Stage(...) or STAGE = below.STAGE.climb()")
    if wrong := _wrong(stage):
        raise UsageError(f"--stage-file {path}: {wrong}")
    return stage, Doc.of_any(module.__doc__ or "")


def _where_and_what(error: BaseException, path: Path) -> str:
    """An exception and the line of the file that it came from, in one line."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    line = error.lineno if isinstance(error, SyntaxError) and error.filename == str(path) else lines[-1:] and lines[-1]
    text = error.msg if isinstance(error, SyntaxError) else " ".join(str(error).split())
    return f"{f'line {line}: ' if line else ''}{type(error).__name__}{f': {text}' if text else ''}"


def _wrong(stage: Stage) -> str:
    """What keeps a stage out of a table, a results file or a folder; empty where nothing does."""
    name = stage.name
    if not isinstance(name, str) or not NAME.fullmatch(name):
        return f"stage name {name!r}: take small letters, digits and hyphens, such as my-stage"
    if name in TAKEN or name.startswith("torch-"):
        return f"stage name {name!r}: means something else already; take another, such as my-stage"
    if not isinstance(stage.title, str) or not stage.title or not callable(stage.build):
        return f"stage {name}: needs a title and a class or function that builds its trainer"
    if not isinstance(stage.needs, tuple) or not all(isinstance(need, str) for need in stage.needs):
        return f"stage {name}: needs {stage.needs!r}; write a tuple such as ('torch',), or () for nothing"
    for what, value, known in (
        ("group", stage.group, get_args(Group)),
        ("precision", stage.precision, get_args(Precision)),
    ):
        if value not in known:
            return f"stage {name}: {what} {value!r}; it is one of {', '.join(known)}"
    return ""
