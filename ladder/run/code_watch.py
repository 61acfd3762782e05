"""Hashes the code of a stage, so that `compare` can tell whether it is the same in two runs, and keeps it.

Files are read, not imported: the stage's module, the rungs that it names by their ids, all modules of `stages/` and
`common/` that it imports directly or indirectly (for a user's file, the modules beside it), the CUDA and C++ files that
these name in strings, the headers that those include, and the references' `choices.json`. Equal hashes mean equal
code; different hashes mean that the code may differ, since a module can contain more than one stage uses. Libraries
are recorded in the environment, the harness by its commit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from common.source_hash import source_hash
from ladder.records import source_walk
from ladder.records.run import StageCode
from ladder.records.sources import collected, keep
from stages.registry import Entry, load_all

FOLDER = "stages"
SUFFIXES = (".py", ".cu", ".cuh", ".cpp", ".cc", ".c", ".h")
ROOT = Path(__file__).resolve().parents[2]
SCHEME = 2  # runs before version 0.2 have scheme 1, which hashed bytes and paths


class Disk(Mapping[str, str]):
    """The texts of files on disk by their paths, relative to the project or absolute; each is looked at once."""

    def __init__(self) -> None:
        self._found: dict[object, bool] = {}
        self._texts: dict[str, str] = {}

    def __contains__(self, path: object) -> bool:
        if path not in self._found:
            self._found[path] = (ROOT / str(path)).is_file()
        return self._found[path]

    def __getitem__(self, path: str) -> str:
        if path not in self._texts:
            self._texts[path] = (ROOT / path).read_text(encoding="utf-8")
        return self._texts[path]

    def __iter__(self) -> Iterator[str]:
        raise TypeError("a file is asked for by its path")

    def __len__(self) -> int:
        raise TypeError("a file is asked for by its path")


class CodeWatch:
    """The files of a stage's code as they were, to tell later whether one has changed."""

    def __init__(self, source: str, disk: Disk | None = None) -> None:
        """`source` is `module:attribute` or `/file.py:STAGE`; raises OSError if a file is missing.

        Stages that share a `disk` share what was read from it.
        """
        name = source.rpartition(":")[0]
        path = name if "/" in name else f"{name.replace('.', '/')}.py"
        code = source_walk.code_of(path, Disk() if disk is None else disk)
        modules, kernels, tables = ({ROOT / file for file in files} for files in code)
        self._seen = {file: (stamp := _stamp(file), _hash(file, stamp)) for file in modules | kernels | tables}
        self.code = StageCode(source_hash(tables | modules), source_hash(kernels) if kernels else None, scheme=SCHEME)
        """The hashes of the stage."""

    def changed(self) -> list[str]:
        """The names of the files whose code is not what it was; a new comment or a new date is no change."""
        return sorted(
            file.name for file, (stamp, was) in self._seen.items() if _stamp(file) != stamp and not _is(file, was)
        )


def hashes_of(source: str, disk: Disk | None = None) -> StageCode:
    """The hashes of a stage; its argument and what it raises are those of `CodeWatch`."""
    return CodeWatch(source, disk).code


def code_today() -> dict[str, StageCode]:
    """The hashes of every registered stage by its name."""
    disk = Disk()
    return {name: hashes_of(entry.source, disk) for name, entry in load_all().items()}


def _stamp(file: Path) -> tuple[int, ...] | None:
    """Changes whenever the file is written; None if it is gone."""
    try:
        stat = file.stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_ctime_ns, stat.st_size, stat.st_ino


@lru_cache(maxsize=4096)
def _hash(file: Path, stamp: tuple[int, ...] | None) -> str:  # noqa: ARG001
    return source_hash([file])


def _is(file: Path, hashed: str) -> bool:
    """Whether the file's code has this hash; no if it is gone or no Python any longer."""
    try:
        return source_hash([file]) == hashed
    except (OSError, ValueError, SyntaxError):
        return False


def keep_sources(chosen: Sequence[Entry], entries: Mapping[str, Entry], folder: Path) -> None:
    """Write the sources of the chosen stages, and of the rungs that they climb from, into the run's folder."""
    texts = {
        path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8", errors="replace")
        for path in (ROOT / FOLDER).rglob("*")
        if path.suffix in SUFFIXES
    }
    places = {}
    for entry in chosen:
        rung: Entry | None = entry
        while rung is not None and rung.stage.name not in places:
            places[rung.stage.name] = _place(rung, texts)
            rung = entries.get(rung.stage.below or "")
    keep(collected(texts, {name: place for name, place in places.items() if place.partition(":")[0] in texts}), folder)


def _place(entry: Entry, texts: dict[str, str]) -> str:
    """The stage's `path:attribute`; the texts get a user's file, under its name alone, and the files that it names."""
    module, _, attribute = entry.source.rpartition(":")
    if "/" not in module:
        path = f"{module.replace('.', '/')}.py"
        if path not in texts and (ROOT / path).is_file():  # a stage from elsewhere in the project, such as its tests
            texts[path] = (ROOT / path).read_text(encoding="utf-8", errors="replace")
        return f"{path}:{attribute}"
    own = Path(module)
    text = own.read_text(encoding="utf-8", errors="replace")
    for beside in own.parent.iterdir():
        if beside.suffix in SUFFIXES and beside.is_file() and (beside == own or beside.stem in text):
            texts[beside.name] = beside.read_text(encoding="utf-8", errors="replace")
    texts[own.name] = text
    return f"{own.name}:{attribute}"
