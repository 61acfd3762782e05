"""Hashes the code of a stage, so that `compare` can tell whether it is the same in two runs.

Files are read, not imported: the stage's module, the rungs that it names by their ids, all modules of `stages/` and
`common/` that it imports directly or indirectly (for a user's file, the modules beside it), the CUDA and C++ files that
these name in strings, the headers that those include, and the references' `choices.json`. Equal hashes mean equal
code; different hashes mean that the code may differ, since a module can contain more than one stage uses. Libraries
are recorded in the environment, the harness by its commit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from common.source_hash import source_hash
from ladder.records import source_walk
from ladder.records.run import StageCode

ROOT = Path(__file__).resolve().parents[2]
SCHEME = 2  # runs before version 0.2 have scheme 1, which hashed bytes and paths


class Disk(Mapping[str, str]):
    """The texts of files on disk by their paths: relative to the project, or absolute."""

    def __contains__(self, path: object) -> bool:
        return (ROOT / str(path)).is_file()

    def __getitem__(self, path: str) -> str:
        return (ROOT / path).read_text(encoding="utf-8")

    def __iter__(self) -> Iterator[str]:
        raise TypeError("a file is asked for by its path")

    def __len__(self) -> int:
        raise TypeError("a file is asked for by its path")


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
    path = name if "/" in name else f"{name.replace('.', '/')}.py"
    modules, compiled, tables = ({ROOT / file for file in files} for files in source_walk.code_of(path, Disk()))
    return modules, compiled, tables
