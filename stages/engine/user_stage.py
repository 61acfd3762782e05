"""Loading a stage from a user's file. Every mistake in the file is reported in one line."""

from __future__ import annotations

import importlib.util
import multiprocessing.process
import os
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import get_args

from common.errors import UsageError, describe_error, way_out
from common.streams import printable
from common.vocabulary import CONTENDERS, GROUPS, MOST_LETTERS, STAGE_NAME
from stages.engine.recipe import Precision
from stages.engine.stage import Doc, Group, Stage

ATTRIBUTE = "STAGE"
ENDINGS = "STAGE = Stage(...) or STAGE = rung(...).climb(...)"
PREFIX = "stage_file_"  # begins the name of the module that a user's file becomes
LONGEST_TITLE = 120  # characters of a title, which stands in tables


def load_file(path: Path) -> tuple[Stage, Doc]:
    """The `STAGE` of a Python file, and the paragraphs of its docstring.

    The file may import modules beside it, also relatively. Raises UsageError if it is missing, raises on import, or has
    no valid stage.
    """
    if not path.is_file():
        raise UsageError(f"--stage-file {path}: {'not a file' if path.exists() else 'no such file'}; name a .py file")
    if path.suffix != ".py":
        raise UsageError(f"--stage-file {path}: not a .py file; name one that ends in STAGE = ...")
    spec = _spec(path)
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look there
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))  # last, so that no file there shadows a module of ours
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        where, way = describe_error(error, path), way_out(error, path) or "correct it"
        raise UsageError(f"--stage-file {path}: cannot be imported: {where}; {way}") from error
    stage = getattr(module, ATTRIBUTE, None)
    if not isinstance(stage, Stage):
        has = "no STAGE" if stage is None else f"a STAGE that is {type(stage).__name__}"
        raise UsageError(f"--stage-file {path}: has {has}; end it in {ENDINGS}")
    doc = Doc.of_any(module.__doc__ or "")
    check_described(path, stage, doc)
    return stage, doc


def own_parts(path: Path, stage: Stage) -> tuple[str, ...]:
    """The parts, and `build`, that the file writes itself: from the public classes of `stages`, and from no other."""
    public = {base for one in vars(sys.modules["stages"]).values() if isinstance(one, type) for base in one.__mro__}
    module = _module_name(path)

    def is_own(made: object) -> bool:
        bases = {base for base in type.mro(made) if base not in public} if isinstance(made, type) else {made}
        return bool(bases) and all(getattr(base, "__module__", "") == module for base in bases)

    chosen = {"build": stage.build, **(stage.recipe.parts() if stage.recipe is not None else {})}
    return tuple(name for name, made in chosen.items() if is_own(made))


class StageFiles:
    """Finds a stage file by the name of its module: processes that a stage starts have its path alone."""

    @staticmethod
    def find_spec(name: str, *_: object) -> ModuleSpec | None:
        """The file of this name in the last folder of the path that has one; None for any other module."""
        folders = reversed(sys.path) if name.startswith(PREFIX) else ()
        files = (file for folder in folders for file in Path(folder).glob("*.py") if _module_name(file) == name)
        return next(map(_spec, files), None)


sys.meta_path.append(StageFiles)


def _module_name(path: Path) -> str:
    return f"{PREFIX}{path.stem.replace('.', '_')}"


def _spec(path: Path) -> ModuleSpec:
    """The module that a file becomes, which is also the package of the modules beside it."""
    around = [str(path.parent)]
    spec = importlib.util.spec_from_file_location(_module_name(path), path, submodule_search_locations=around)
    assert spec is not None
    return spec


def enter_folder(path: Path) -> None:
    """Let relative paths, also those of processes started later, begin where the user's file lies."""
    os.chdir(path.parent)
    multiprocessing.process.ORIGINAL_DIR = str(path.parent)  # type: ignore[attr-defined]


def check_described(path: Path, stage: Stage, doc: Doc) -> None:
    """Raise UsageError if tables, results or folders cannot hold the stage's description."""
    if wrong := _wrong(stage, doc):
        raise UsageError(f"--stage-file {path}: {wrong}")


def _wrong(stage: Stage, doc: Doc) -> str:
    """What tables, results or folders cannot hold of the stage; empty if they can."""
    name = stage.name
    if not isinstance(name, str) or not STAGE_NAME.fullmatch(name):
        return f"stage name {name!r}: use small letters, digits and hyphens, such as my-stage"
    if name in (*GROUPS, CONTENDERS) or name.startswith("torch-"):
        return f"stage name {name!r}: has another meaning; choose another name, such as my-stage"
    if not isinstance(stage.title, str) or not stage.title or not callable(stage.build):
        return f"stage {name}: needs a title and a class or function that builds its trainer"
    if not isinstance(stage.needs, tuple) or not all(isinstance(need, str) for need in stage.needs):
        return f"stage {name}: needs {stage.needs!r}; write a tuple such as ('torch',), or () for nothing"
    if isinstance(stage.words, str) and len(stage.words) > MOST_LETTERS:
        return f"stage {name}: words of {len(stage.words):,} letters; use {MOST_LETTERS} or fewer"
    if len(stage.title) > LONGEST_TITLE:
        return f"stage {name}: a title of {len(stage.title):,} characters; use {LONGEST_TITLE} or fewer"
    told = {what: getattr(stage, what) for what in ("title", "words", "below", "changed")} | vars(doc)
    told |= {f"part {part.name}": f"{part.name} {part.chosen} {part.file}" for part in stage.parts}
    for what, text in told.items():
        if text is not None and not (isinstance(text, str) and text.isprintable()):
            return f"stage {name}: {what} {printable(repr(text)[:80])}: use printable text in one line"
    for what, value, known in (
        ("group", stage.group, get_args(Group)),
        ("precision", stage.precision, get_args(Precision)),
    ):
        if value not in known:
            return f"stage {name}: {what} {value!r}; choose from {', '.join(known)}"
    return ""
