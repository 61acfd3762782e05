"""`sources.json.gz`: the code that a run measured, each file once, beside its `results.json`.

A study's points share one, in the study's folder. A run without one, such as the recorded runs, gets its code from the
commit that it recorded, if this checkout has it.
"""

from __future__ import annotations

import gzip
import io
import re
import subprocess
import tarfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from functools import cache
from itertools import chain
from pathlib import Path

import msgspec

from common.files import atomic_write
from ladder.records.foreign import decoded
from ladder.records.run import Results, ResultsError
from ladder.records.source_walk import Project
from ladder.records.study import INDEX
from ladder.records.used_code import files_of

ROOT = Path(__file__).resolve().parents[2]
NAME = "sources.json.gz"
FOLDER = "stages"  # of the project: every rung and kernel
COMMIT = re.compile(r"[0-9a-f]{7,64}")
WAY_OUT = "remove it: a page can do without"
GIT_S = 30.0  # seconds that git may take


class Sources(msgspec.Struct, frozen=True):
    """Texts by their paths in the project, and the files of each stage."""

    files: dict[str, str]
    stages: dict[str, list[str]]  # a stage's own file, those of the parts that it names, then its CUDA files
    replaced: dict[str, str] = {}  # the class that a rung's choice replaces in the one below, if that is known
    commit: str = ""  # the commit that they were filled in from; empty: kept by the run


def keep(sources: Sources, folder: Path) -> None:
    """Write the sources of a run in this folder; those of a study's points join the ones that are there."""
    path = _place(folder)
    known = None
    with suppress(ResultsError):  # what cannot be used is replaced
        known = _load(path)
    if known is not None:
        files, stages = known.files | sources.files, known.stages | sources.stages
        sources = Sources(files, stages, known.replaced | sources.replaced)
    atomic_write(path, gzip.compress(msgspec.json.encode(sources, order="sorted"), mtime=0))


def sources_of(results: Results, folder: Path) -> Sources | None:
    """The code that a run in this folder measured: as kept, else filled in from its commit; None without either.

    Raises ResultsError for kept code that cannot be used.
    """
    kept = _load(_place(folder))
    if kept is not None:
        return kept
    commit = (results.environment.get("code") or {}).get("git_commit")
    return filled_in(commit) if isinstance(commit, str) and COMMIT.fullmatch(commit) else None


@cache
def filled_in(commit: str) -> Sources | None:
    """Every stage of a commit of this checkout; None if it does not have the commit, or there is no git."""
    command = ["git", "-C", str(ROOT), "archive", "--format=tar", commit, FOLDER]
    try:
        packed = subprocess.run(command, capture_output=True, timeout=GIT_S, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        texts = {
            member.name: file.read().decode(errors="replace")
            for member in archive
            if member.isfile() and (file := archive.extractfile(member)) is not None
        }
    project = Project(texts)
    return msgspec.structs.replace(collected(project, project.stages), commit=commit)


def collected(project: Project, places: Mapping[str, str]) -> Sources:
    """The sources of stages; `places` has a stage's `path:attribute` by its name.

    Of the folders of a user's file, only those are there that tell it from another one of its name.
    """
    texts = project.texts
    stages = {name: files_of(place, project) for name, place in places.items()}
    replaced = {name: project.replaced(place) for name, place in places.items()}
    shown = _shown(set(chain(*stages.values())))
    return Sources(
        {shown[path]: texts[path] for path in shown},
        {name: [shown[path] for path in files] for name, files in stages.items()},
        replaced,
    )


def _shown(paths: Collection[str]) -> dict[str, str]:
    """Each path in the project as it is, any other with as few folders as tell it from the rest."""

    def ends(path: str) -> Iterator[str]:
        for start in range(path.count("/"), 0, -1):
            yield path.split("/", start)[-1]

    def alone(end: str) -> bool:
        return sum(path == end or path.endswith(f"/{end}") for path in paths) == 1

    return {path: next(filter(alone, ends(path)), path) if path.startswith("/") else path for path in paths}


def _place(folder: Path) -> Path:
    """Where the sources of a run in this folder are: for a point of a study, in the study's folder."""
    return (folder.parent if (folder.parent / INDEX).exists() else folder) / NAME


def _load(path: Path) -> Sources | None:
    """The sources in a file; None if there is none. Raises ResultsError for one that cannot be used."""
    if not path.exists():
        return None
    sources = decoded(path, Sources, "the code of a run", f"; {WAY_OUT}")
    if absent := {own for files in sources.stages.values() for own in files} - sources.files.keys():
        raise ResultsError(f"{path}: names {min(absent)[:80]!r}, which it does not hold; {WAY_OUT}")
    return sources
