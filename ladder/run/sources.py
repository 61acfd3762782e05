"""Hashes the code of a stage, so that `compare` can tell whether it is the same in two runs.

Files are read, not imported: the stage's module, the rungs that it names by their ids, all modules of `stages/` and
`common/` that it imports directly or indirectly (for a user's file, the modules beside it), the CUDA and C++ files that
these name in strings, the headers that those include, and the references' `choices.json`. Equal hashes mean equal
code; different hashes mean that the code may differ, since a module can contain more than one stage uses. Libraries
are recorded in the environment, the harness by its commit.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from common.cuda.compile import local_sources
from common.source_hash import source_hash
from ladder.records.run import StageCode
from stages.registry import load_all

ROOT = Path(__file__).resolve().parents[2]
KERNELS = ROOT / "stages" / "kernels"
OURS = ("stages", "common")
PUBLIC = "stages"  # the module for users' stages; its names come from other modules
COMPILED = (".cu", ".cpp", ".cc", ".c")
TABLE = ".json"
SCHEME = 2  # runs before version 0.2 have scheme 1, which hashed bytes and paths


@dataclass(frozen=True)
class Module:
    """A Python file: the project's modules that it imports, and the files that it names.

    These are compiled sources, whose headers count as well, and tables of choices that lie beside it.
    """

    imports: tuple[Path, ...]
    kernels: tuple[Path, ...]
    tables: tuple[Path, ...]


def code_of(source: str) -> StageCode:
    """The hashes of a stage, given as `module:attribute` or `/file.py:STAGE`; raises OSError if a file is missing."""
    modules, kernels, tables = _files_of(source)
    return StageCode(source_hash(tables | modules), source_hash(kernels) if kernels else None, scheme=SCHEME)


class CodeWatch:
    """The files of a stage's code as they were, to tell later whether one has changed."""

    def __init__(self, source: str) -> None:
        self._seen = {file: (_stamp(file), source_hash([file])) for file in set().union(*_files_of(source))}

    def changed(self) -> list[str]:
        """The names of the files whose code is not what it was; a new comment or a new date is no change."""
        return sorted(
            file.name for file, (stamp, was) in self._seen.items() if _stamp(file) != stamp and not _is(file, was)
        )


def _stamp(file: Path) -> tuple[int, ...] | None:
    """Changes whenever the file is written; None if it is gone."""
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino


def _is(file: Path, hashed: str) -> bool:
    """Whether the file's code has this hash; no if it is gone or no Python any longer."""
    try:
        return source_hash([file]) == hashed
    except (OSError, ValueError, SyntaxError):
        return False


def _files_of(source: str) -> tuple[set[Path], set[Path], set[Path]]:
    """The modules, compiled files and tables of a stage's code."""
    name = source.rpartition(":")[0]
    first = Path(name) if "/" in name else _file_of(ROOT, name)
    found: dict[Path, Module] = {}
    waiting = [first] if first else []
    while waiting:
        path = waiting.pop()
        if path not in found:
            found[path] = _read(path, path.read_bytes())
            waiting += found[path].imports
    named = {kernel for module in found.values() for kernel in module.kernels}
    kernels = {file for kernel in named for file in local_sources(kernel)}
    tables = {table for module in found.values() for table in module.tables}
    return set(found), kernels, tables


@cache
def _read(path: Path, text: bytes) -> Module:
    """What a Python file with this text leads to; while a study runs, somebody may write another one."""
    public = (ROOT / PUBLIC / "__init__.py").read_bytes()
    imports: set[Path | None] = set()
    kernels: set[Path] = set()
    tables: set[Path] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            imports.update(_imported(path, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                imports.add(_imported(path, f"{node.module}.{alias.name}"))
                module = _public_names(public).get(alias.name) if node.module == PUBLIC else node.module
                imports.add(_imported(path, module) if module else None)
        elif isinstance(node, ast.Call) and (name := _rung_id(node)) and (rung := load_all().get(name)):
            imports.add(_imported(path, rung.source.rpartition(":")[0]))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.endswith(COMPILED):
            beside = path.with_suffix(node.value) if node.value in COMPILED else path.parent / node.value
            kernels.update((beside, KERNELS / node.value))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.endswith(TABLE):
            tables.update(file for file in [path.parent / node.value] if file.is_file())
    return Module(tuple(file for file in imports if file), tuple(kernels), tuple(tables))


@cache
def _public_names(public: bytes) -> dict[str, str]:
    """The module behind each name that the public module imports; for `rung`, its id is followed instead."""
    nodes = ast.parse(public).body
    return {
        alias.name: node.module
        for node in nodes
        if isinstance(node, ast.ImportFrom) and node.module and node.module != "stages.registry"
        for alias in node.names
    }


def _rung_id(call: ast.Call) -> str:
    """The id in the call `rung("cublas")` or `stages.rung("cublas")`; empty for any other call."""
    match call:
        case ast.Call(ast.Name("rung") | ast.Attribute(attr="rung"), [ast.Constant(str(name))]):
            return name
    return ""


def _imported(importer: Path, name: str) -> Path | None:
    """The file of an imported module: of the project, or beside a user's file; None for any other module."""
    return _file_of(ROOT if name.partition(".")[0] in OURS else importer.parent, name)


def _file_of(folder: Path, name: str) -> Path | None:
    """The file of a dotted module name below this folder; None if there is none."""
    path = folder.joinpath(*name.split("."))
    return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()), None)
