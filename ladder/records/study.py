"""`study.json`: what a study varies, and how far it has come; the results of each point lie in a folder of its name."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from ladder.records.run import ResultsError, write_whole

STUDY_VERSION = 1
INDEX = "study.json"

Measure = Literal["epoch", "step", "times"]  # ms/epoch, us/step, or how many times as fast as another stage
PointStatus = Literal["waiting", "begun", "measured", "skipped"]


class Published(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A number that others published of their own program on their own GPU: shown beside ours, never mixed with it."""

    who: str
    what: str  # what was measured, such as `an epoch with validation, 784-784x4-10, batch 64`
    value: str  # with its unit, as it was published
    gpu: str  # `not named` where it was not
    link: str = ""
    # What of ours stands beside it: a stage, or the fastest rung, at a point of the study; nothing without a measure.
    measure: Measure | None = None
    at: str = ""  # the point's name
    of: str = ""  # the stage; empty: the fastest rung
    than: str = ""  # for `times`: the stage that it is so many times as fast as


class Point(msgspec.Struct, frozen=True):
    """One run of a study; its folder is its name."""

    name: str
    values: dict[str, Any]  # of what is varied, as the file has them
    settings: dict[str, Any]  # all that the file says of this run, the values among it
    status: PointStatus = "waiting"
    reason: str | None = None  # why it was skipped


class Study(msgspec.Struct, frozen=True):
    """A study and where it stands."""

    name: str  # of its file, without the ending
    title: str
    question: str
    created: str  # ISO 8601, UTC
    command: str
    varied: list[str]  # one or two settings, or none
    points: list[Point]
    published: list[Published] = []
    schema_version: int = STUDY_VERSION


def save_study(study: Study, folder: Path) -> None:
    """Replace the index of a study's folder in one step."""
    write_whole(study, folder / INDEX)


def load_study(folder: Path) -> Study:
    """Read the index of a study's folder; ResultsError says what is wrong with it."""
    path = folder / INDEX
    try:
        study = msgspec.json.decode(path.read_bytes(), type=Study)
    except OSError as error:
        raise ResultsError(f"{path}: cannot be read ({error.strerror})") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ResultsError(f"{path}: not a study of this program ({error})") from error
    if study.schema_version != STUDY_VERSION:
        raise ResultsError(f"{path}: schema version {study.schema_version}, this program reads {STUDY_VERSION}")
    if wrong := _wrong(study):
        raise ResultsError(f"{path}: not a study of this program ({wrong})")
    return study


def as_found(study: Study, folder: Path) -> Study:
    """The study with every point waiting that was measured and whose results are gone."""
    gone = [one.status == "measured" and not (folder / one.name / "results.json").exists() for one in study.points]
    points = [replace(one, status="waiting") if lost else one for one, lost in zip(study.points, gone, strict=True)]
    return replace(study, points=points)


def _wrong(study: Study) -> str:
    """What a file says of its points that cannot be, or would put their folders somewhere else."""
    if len({point.name for point in study.points}) < max(len(study.points), 1):
        return "it has no points, or two of one name"
    for point in study.points:
        if point.name in ("", "..") or "\0" in point.name or Path(point.name).name != point.name:
            return f"point {point.name!r} is no folder's name"
        if lacking := set(study.varied) - set(point.values):
            return f"point {point.name!r} has no value of {sorted(lacking)[0]!r}"
    return "" if study.varied or len(study.points) == 1 else "its points vary nothing"
