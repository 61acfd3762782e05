"""The exceptions with a meaning of their own: a user's mistake, and a stage that does not fit."""

from __future__ import annotations

import re
import sys
import traceback
from pathlib import Path
from types import ModuleType

from common.streams import printable


class UsageError(Exception):
    """A request that cannot be met: one line with the thing, its value and the way out. Exit code 2."""


class MisfitError(Exception):
    """A stage cannot run this problem on this machine, which is no defect: its row says "skipped".

    The text is the reason in that row: one line that names the limit, and the closest rung where there is one.
    """


def describe_error(error: BaseException, path: Path) -> str:
    """The file's line that raised the exception, its type and its text, in one line."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    line, text = lines[-1:] and lines[-1], " ".join(str(error).split())
    if isinstance(error, SyntaxError):
        is_own = error.filename == str(path)
        line, text = (error.lineno, error.msg) if is_own else (line, f"{error.msg} in {error.filename}")
    return f"{f'line {line}: ' if line else ''}{type(error).__name__}{f': {printable(text)}' if text else ''}"


def way_out(error: BaseException, path: Path) -> str:
    """What to do about an error that a user's file raised, if it is one of those that many files run into."""
    match error:
        case SyntaxError(msg=said) if re.search("codec can't|null bytes|encoding", said):
            return "save it as UTF-8, or name its encoding in the first line: # -*- coding: latin-1 -*-"
        case ModuleNotFoundError(name=str(name)) if name in ("torch", "jax"):
            return f"name it in `needs`, {(name,)}, and import it inside a function"
        case ImportError(name=str(name)) | AttributeError(obj=ModuleType(__name__=name)):
            top = name.partition(".")[0]
            beside = next((found for found in (path.parent / f"{top}.py", path.parent / top) if found.exists()), None)
            taken = getattr(sys.modules.get(top), "__file__", None)
            if beside is not None and taken is not None and not Path(taken).is_relative_to(path.parent):
                return f"{top} is {taken} here; rename {beside.name}, such as to my_{beside.name}"
            if isinstance(error, ModuleNotFoundError):
                return f"install the package that has it, by `{sys.executable} -m pip install`"
    return ""
