"""Hashes the code that a stage uses, so that `compare` can tell whether it is the same in two runs, and keeps it.

`ladder.records.used_code` says what counts. Equal hashes mean equal code; different ones, that it may differ. Libraries
are recorded in the environment, and the rest of the harness by its commit.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from common.files import source_text
from ladder.records.run import StageCode
from ladder.records.source_walk import Project
from ladder.records.sources import collected, keep
from ladder.records.used_code import Forms, used_code
from stages.registry import Entry, load_all

FOLDER = "stages"
ROOT = Path(__file__).resolve().parents[2]
# Older ones: 3 kept modules' names, 2 whole files without comments and paths, 1 (before version 0.2) files as they are.
SCHEME = 4


class Disk(Mapping[str, str]):
    """The texts of files on disk by their paths, relative to the project or absolute; each is looked at once."""

    def __init__(self) -> None:
        self._found: dict[object, bool] = {}
        self._texts: dict[str, str] = {}
        self._listed: list[str] = []

    def __contains__(self, path: object) -> bool:
        if path not in self._found:
            self._found[path] = (ROOT / str(path)).is_file()
        return self._found[path]

    def __getitem__(self, path: str) -> str:
        if path not in self._texts:
            self._texts[path] = source_text(ROOT / path)
        return self._texts[path]

    def __iter__(self) -> Iterator[str]:
        self._listed = self._listed or [path.relative_to(ROOT).as_posix() for path in (ROOT / FOLDER).rglob("*.*")]
        return iter(self._listed)

    def __len__(self) -> int:
        return sum(1 for _ in self)


class CodeWatch:
    """What a stage uses as it was, to tell later whether it has changed."""

    def __init__(self, source: str, project: Project | None = None) -> None:
        """`source` is `module:attribute` or `/file.py:STAGE`; stages that share a `project` share what it has read."""
        self._source = source
        used = used_code(place_of(source), project or Project(Disk()))
        self._stamps = {file: _stamp(file) for file in used.files}
        kernels = _hash(used.kernels) if used.kernels else None
        self.code = StageCode(_hash(used.python), kernels, scheme=SCHEME, timer=_hash(used.timer))
        """The hashes of the stage."""

    def changed(self) -> list[str]:
        """The names of the files that were written if the stage's code is not what it was; a comment is no change."""
        written = [file for file, stamp in self._stamps.items() if _stamp(file) != stamp]
        if not written or CodeWatch(self._source).code == self.code:
            return []
        return sorted(Path(file).name for file in written)


def hashes_of(source: str, project: Project | None = None) -> StageCode:
    """The hashes of a stage; its arguments are those of `CodeWatch`."""
    return CodeWatch(source, project).code


def code_today() -> dict[str, StageCode]:
    """The hashes of every registered stage by its name."""
    project = Project(Disk())
    return {name: hashes_of(entry.source, project) for name, entry in load_all().items()}


def _hash(forms: Forms) -> str:
    """64 hexadecimal digits, independent of the machine and of where symbols are."""
    return hashlib.sha256("\n".join(sorted(set().union(*forms.values()))).encode()).hexdigest()


def _stamp(file: str) -> tuple[int, ...] | None:
    """Changes whenever the file is written; None if it is gone."""
    try:
        stat = (ROOT / file).stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_ctime_ns, stat.st_size, stat.st_ino


def keep_sources(
    chosen: Sequence[Entry], entries: Mapping[str, Entry], folder: Path, project: Project | None = None
) -> None:
    """Write the sources of the chosen stages, and of the rungs that they climb from, into the run's folder."""
    places = {}
    for entry in chosen:
        rung: Entry | None = entry
        while rung is not None and rung.stage.name not in places:
            places[rung.stage.name] = place_of(rung.source)
            rung = entries.get(rung.stage.below or "")
    keep(collected(project or Project(Disk()), places), folder)


def place_of(source: str) -> str:
    """The `path:attribute` of `module:attribute` or `/file.py:STAGE`."""
    module, _, attribute = source.rpartition(":")
    return f"{module if '/' in module else module.replace('.', '/') + '.py'}:{attribute}"
