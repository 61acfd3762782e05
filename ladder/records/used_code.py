"""The code that a stage uses, symbol by symbol.

Python is followed by name from what the stage is made with: functions, constants, and classes, of which a member counts
if any code that counts has its name, as an attribute, a keyword or a string. A module that is passed on, as to
`getattr`, counts like a class. A rung's parts are those that its chain of `climb` ends with. Of a `.cu` file that a
string names, the kernels count that strings name, and what these use of the file and its headers.

More counts where names do not tell: a whole file where a name is not found in it, where no kernel of it is named, or
that cannot be parsed; any other compiled file; a `.json` table; all members of a class with a foreign base, which its
library may call; and what a module does when it is imported. For a rung on the CPU a `.cu` file says nothing.
"""

from __future__ import annotations

import ast
import fnmatch
import posixpath
from collections.abc import Iterable

from common.source_hash import cuda_form
from ladder.records.cuda_symbols import used_of
from ladder.records.python_symbols import MAIN, Class, Piece, chain_of
from ladder.records.source_walk import REGISTRY, Project

# The harness's own loop: what happens between two readings of its clock.
TIMER = (
    "ladder/measure/timing.py:timed_run", "ladder/measure/timing.py:measure", "ladder/measure/timing.py:warmup_epochs",
    "ladder/measure/fetched.py:fetched_metrics", "common/cuda/clock.py:fence", "common/cuda/clock.py:EventPair",
    "ladder/measure/measurement.py:prepared_validation",
)  # fmt: skip
GIVEN = (  # to every stage
    "common/problem.py:Problem", "common/problem.py:Params", "common/data/dataset.py:Split",
    "stages/engine/in_a_row.py:InARow",
)  # fmt: skip
TRAINERS = ("stages/engine/step.py:RecipeTrainer", "stages/engine/fleet.py:FleetTrainer")  # of a rung
ON_GPUS = ("stages/engine/stage.py:GPU", "stages/engine/ranks.py:RanksTrainer")  # of one without a place of its own
COMPILER = "common/cuda/compile.py"
NOTHING = "[]"  # the form of a module that does nothing when it is imported
KERNELS = "stages/kernels"
KERNEL_FILE, TABLE = ".cu", ".json"
NAMED_FILES = (KERNEL_FILE, ".cpp", ".cc", ".c", TABLE)

Forms = dict[str, set[str]]  # by file


class UsedCode:
    """What one stage uses, by file: the timer, and beyond it Python and kernels."""

    def __init__(self, place: str, project: Project) -> None:
        """`place` is the stage's `path:attribute`."""
        self.timer: Forms = {}
        self.python: Forms = {}  # with tables
        self.kernels: Forms = {}
        self.files: dict[str, None] = {}  # all that were looked into
        self._project, self._texts = project, project.texts
        self._forms = self.timer
        self._reached: set[tuple[str, str]] = set()
        self._mentions: set[str] = set()
        self._patterns: set[str] = set()
        self._waiting: dict[str, list[tuple[str, Piece | Class]]] = {}  # members that nothing has named yet
        self._todo: list[tuple[str, Piece]] = []
        self._named: dict[str, bool] = {}  # compiled files and tables, and whether by more than a pattern
        self._has_place = False
        self._follow(TIMER)
        self._forms = self.python
        self._follow((*GIVEN, place))
        self._take_files()

    def _follow(self, places: Iterable[str]) -> None:
        """Count these symbols, and all that they use."""
        self._reach_all(places)
        while self._todo:
            path, piece = self._todo.pop()
            for file, name in self._project.used(path, piece):
                if file:
                    self._reach(file, name)
                else:
                    self._forms.setdefault(path, set()).add(name)
            stages = self._project.stages if piece.rungs else {}
            self._reach_all(stages[rung] for rung in piece.rungs if rung in stages)
            for word in piece.mentions:
                if word.endswith(NAMED_FILES):
                    self._name_file(path, word)
                if word not in self._mentions:
                    self._mention(word)

    def _reach_all(self, places: Iterable[str]) -> None:
        for place in places:
            path, _, name = place.rpartition(":")
            if path in self._texts:  # an older commit may lack one
                self._reach(path, name)

    def _reach(self, path: str, name: str) -> None:
        """Count what a name of a module stands for, or the members of the module that something names."""
        if path == REGISTRY or (path, name) in self._reached:
            return
        self._reached.add((path, name))
        self._enter(path)
        symbols = self._project.symbols(path)
        if made := self._project.stage_at(path, name):
            self._take_stage(path, made)
        elif name in symbols:
            self._take(path, symbols[name])
        elif name in symbols.imports:
            for file, origin in self._project.origins(path, name):
                if file:
                    self._reach(file, origin)
        elif name:
            self._take(path, symbols.whole)
        else:
            for own in symbols:
                self._await(path, own, symbols[own])
        if MAIN in symbols:
            self._reach(path, MAIN)

    def _enter(self, path: str) -> None:
        """Count what a module does when it is imported, and those that it imports."""
        if path not in self.files and path != REGISTRY:  # which leads to all stages
            self.files[path] = None
            symbols = self._project.symbols(path)
            self._take(path, symbols.effects)
            for file, name in self._project.origins(path, "*"):
                if file:
                    self._reach(file, name)
            for file in {file for name in symbols.imports for file, _ in self._project.origins(path, name) if file}:
                self._enter(file)

    def _take(self, path: str, piece: Piece | Class) -> None:
        """Count a symbol now, and what it uses later; of a class, the members that count."""
        if isinstance(piece, Piece):
            self._forms.setdefault(path, set()).add(self._project.form(path, piece))
            self._todo.append((path, piece))
            return
        self._take(path, piece.head)
        is_open = self._project.is_open(path, piece)
        for name, own in piece.members.items():
            if is_open:
                self._take(path, own)
            else:
                self._await(path, name, own)

    def _await(self, path: str, name: str, piece: Piece | Class) -> None:
        """Count a member, now or as soon as code that counts has its name."""
        if self._is_named(name):
            self._take(path, piece)
        else:
            self._waiting.setdefault(name, []).append((path, piece))

    def _is_named(self, name: str) -> bool:
        return name in self._mentions or any(fnmatch.fnmatchcase(name, pattern) for pattern in self._patterns)

    def _mention(self, word: str) -> None:
        """Count the members of this name, or of this pattern."""
        self._mentions.add(word)
        names = [word]
        if "*" in word:
            self._patterns.add(word)
            names = fnmatch.filter(self._waiting, word)
        for name in names:
            for path, piece in self._waiting.pop(name, ()):
                self._take(path, piece)

    def _take_stage(self, path: str, made: ast.Call) -> None:
        """Count what a stage is made with, and what trains it."""
        arguments = self._project.arguments(path, made)
        for key, (file, value) in arguments.items():
            self._take(file, Piece([ast.keyword(key, value)]))
        self._has_place |= "place" in arguments
        if "launch" in arguments:
            self._reach_all(TRAINERS if "place" in arguments else TRAINERS + ON_GPUS)

    def _name_file(self, path: str, word: str) -> None:
        """Keep a compiled file or table, in the module's folder or among the kernels, until all names are known."""
        own, folder = path.removesuffix(".py"), posixpath.dirname(path)
        beside = own + word if word in NAMED_FILES else posixpath.join(folder, word)
        for file in (beside, posixpath.join(KERNELS, word)):
            found = [file] if file in self._texts else fnmatch.filter(self._texts, file) if "*" in file else []
            self._named |= {each: self._named.get(each, False) or each == file for each in found}

    def _take_files(self) -> None:
        """Count what is used of the files that Python names, and of their headers."""
        headers = {path: self._project.with_headers(path) for path in sorted(self._named)}
        found = {path: used_of(headers[path], self._is_named) for path in headers if path.endswith(KERNEL_FILE)}
        for path, texts in headers.items():
            if path in found and self._has_place and self.python.get(COMPILER, set()) <= {NOTHING}:
                continue  # of a rung on the CPU, which finds its kernels by name alone
            used = found.get(path)
            if not used and not self._named[path] and any(found.values()):
                continue  # one of several that a pattern may mean, without a kernel that anything names
            self.files |= dict.fromkeys(texts)
            into = self.python if path.endswith(TABLE) else self.kernels
            for file, forms in (used or {file: {cuda_form(text)} for file, text in texts.items()}).items():
                into.setdefault(file, set()).update(forms)
            into[path] |= {
                posixpath.basename(file) for file in texts
            } & self._mentions  # a header that Python looks for


def used_code(place: str, project: Project) -> UsedCode:
    """What a stage uses, walked once for each project."""
    if place not in project.walked:
        project.walked[place] = UsedCode(place, project)
    used: UsedCode = project.walked[place]
    return used


def files_of(place: str, project: Project) -> list[str]:
    """A stage's own file, those that define the parts it names, then those of its kernels with their headers."""
    own, _, attribute = place.rpartition(":")
    made = project.stage_at(own, attribute)
    calls = [each for each in ast.walk(made) if isinstance(each, ast.Call)] if made else []
    given = [value for call in calls for value in (*call.args, *(word.value for word in call.keywords))]
    parts = [file for value in given for file, _ in project.origins(own, chain_of(value)) if file]
    used = used_code(place, project)
    # Kernels for the CPU are Python modules in a folder of kernels.
    in_python = sorted(path for path in used.python if "/kernels/" in path)
    shown = [path for path in (own, *parts, *in_python) if not path.endswith("__init__.py")]
    return list(dict.fromkeys((*shown, *(path for path in used.files if path in used.kernels))))
