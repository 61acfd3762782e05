"""`study.json`: the settings that a study varies, and the state of its points.

The results of each point are in a subfolder with the point's name.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from ladder.records.foreign import decoded
from ladder.records.run import ResultsError, results_in, write_whole

STUDY_VERSION = 1
INDEX = "study.json"

Measure = Literal["epoch", "step", "times"]  # ms/epoch, us/step, or how many times as fast as another stage
PointStatus = Literal["waiting", "begun", "measured", "skipped"]


class Published(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A number that others published about their program on their GPU; shown beside ours, never mixed with it."""

    who: str
    what: str  # the quantity, such as `an epoch with validation, 784-784x4-10, batch 64`
    value: str  # with its unit, as published
    gpu: str  # `not named` if the source does not name it
    link: str = ""
    # Our number to show beside it: of a stage or the fastest rung at one point. Without a measure, none is shown.
    measure: Measure | None = None
    at: str = ""  # the point's name
    of: str = ""  # the stage; empty: the fastest rung
    than: str = ""  # for `times`: the stage to compare with


class Point(msgspec.Struct, frozen=True):
    """One run of a study; its name is also its folder's."""

    name: str
    values: dict[str, Any]  # of the varied settings, as in the study's file
    settings: dict[str, Any]  # all settings of this run in the study's file, `values` included
    status: PointStatus = "waiting"
    reason: str | None = None  # why it was skipped, or why its job stopped


class Study(msgspec.Struct, frozen=True):
    """A study and the state of its points."""

    name: str  # of its file, without the extension
    title: str
    question: str
    created: str  # ISO 8601, UTC
    command: str
    varied: list[str]  # names of at most two settings
    points: list[Point]
    published: list[Published] = []
    schema_version: int = STUDY_VERSION


def save_study(study: Study, folder: Path) -> None:
    """Replace the index in a study's folder atomically."""
    write_whole(study, folder / INDEX)


def load_study(folder: Path) -> Study:
    """Read the index in a study's folder; raises ResultsError if it is unreadable or inconsistent."""
    path = folder / INDEX
    try:
        study = decoded(path, Study, "a study of this program")
    except ResultsError as error:
        if results_in(folder).exists():
            raise ResultsError(f"{folder}: is a run, no study; leave out the word `study`") from error
        raise
    if study.schema_version != STUDY_VERSION:
        raise ResultsError(f"{path}: schema version {study.schema_version}, this program reads {STUDY_VERSION}")
    if problem := _inconsistency(study):
        raise ResultsError(f"{path}: not a study of this program ({problem})")
    return study


def as_found(study: Study, folder: Path) -> Study:
    """The study, with measured points set back to waiting if their results are gone."""
    lost = [p for p in study.points if p.status == "measured" and not results_in(folder / p.name).exists()]
    return replace(study, points=[replace(p, status="waiting") if p in lost else p for p in study.points])


def _inconsistency(study: Study) -> str:
    """The first contradiction among the points, or a name that is not a subfolder's; empty if there is none."""
    if len({point.name for point in study.points}) < max(len(study.points), 1):
        return "it has no points, or two of the same name"
    for point in study.points:
        if point.name in ("", "..") or "\\" in point.name or Path(point.name).name != point.name:
            return f"point {point.name!r} is not a folder's name"
        if missing := set(study.varied) - set(point.values):
            return f"point {point.name!r} has no value of {sorted(missing)[0]!r}"
    return "" if study.varied or len(study.points) == 1 else "it has several points and varies nothing"
