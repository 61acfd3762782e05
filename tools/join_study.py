"""Joins points of a study that were measured apart (`study FILE --points ...`), for example on several GPUs.

    python -m tools.join_study FOLDER PART...

Copies each point that a part measured or skipped and the folder lacks. A new folder begins as the first part's index.
Parts stay as they are. Exits with 2 and one line if a part has other points or settings, or another kind of GPU.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import msgspec

from common.errors import UsageError
from ladder.records.run import ResultsError, load
from ladder.records.study import INDEX, Point, PointStatus, Study, load_study, save_study
from ladder.run.lock import alone_in
from reports.facts.provenance import gpu_name

DONE: tuple[PointStatus, ...] = ("skipped", "measured")  # in ascending preference


def joined(study: Study, folder: Path, part: Path) -> Study:
    """The study with the points that only the part has done; copies their runs into the folder."""
    theirs = load_study(part)
    if [_alike(point) for point in theirs.points] != [_alike(point) for point in study.points]:
        raise UsageError(f"{part}: has other points or settings than {folder}; measure it again with its file")
    for index, (own, other) in enumerate(zip(study.points, theirs.points, strict=True)):
        if _rank(other) <= _rank(own):
            continue
        if other.status == "measured":
            _check_kind(part / other.name, folder)
        shutil.rmtree(folder / own.name, ignore_errors=True)  # of an interrupted run
        if (part / other.name).exists():
            shutil.copytree(part / other.name, folder / other.name)
        points = [*study.points[:index], other, *study.points[index + 1 :]]
        commands = dict.fromkeys([*study.command.splitlines(), *theirs.command.splitlines()])
        study = msgspec.structs.replace(study, points=points, command="\n".join(commands))
        save_study(study, folder)
    return study


def _check_kind(run: Path, folder: Path) -> None:
    """Raise UsageError if the run and the folder are of different kinds of GPU, ResultsError if there is no run."""
    gpu = gpu_name(load(run)) or "no GPU"
    for path in folder.glob("*/results.json"):
        there = gpu_name(load(path)) or "no GPU"
        if there != gpu:
            raise UsageError(f"{run}: measured on {gpu}, {path.parent} on {there}; join parts of one kind of GPU")


def _rank(point: Point) -> int:
    return DONE.index(point.status) + 1 if point.status in DONE else 0


def _asked(point: Point) -> Point:
    return msgspec.structs.replace(point, status="waiting", reason=None)


def _alike(point: Point) -> Point:
    """The parts of a point that must agree; stages may differ, since each run records its own."""
    settings = {name: value for name, value in point.settings.items() if name != "stages"}
    return msgspec.structs.replace(_asked(point), settings=settings)


def main(argv: list[str]) -> int:
    """Join the parts of the command line, and print the points that still wait; returns the exit status."""
    if len(argv) < 2:
        print("usage: python -m tools.join_study FOLDER PART...", file=sys.stderr)
        return 2
    folder, *parts = map(Path, argv)
    try:
        first = load_study(parts[0])
        folder.mkdir(parents=True, exist_ok=True)
        with alone_in(folder):
            if not (folder / INDEX).exists():
                empty = msgspec.structs.replace(first, points=[_asked(point) for point in first.points], command="")
                save_study(empty, folder)
            study = load_study(folder)
            for part in parts:
                study = joined(study, folder, part)
    except (UsageError, ResultsError) as error:
        print(f"join_study: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"join_study: {error.filename or folder}: {error.strerror}", file=sys.stderr)
        return 2
    waiting = [point.name for point in study.points if point.status not in DONE]
    done = len(study.points) - len(waiting)
    print(f"{folder}: {done} of {len(study.points)} points; waiting: {', '.join(waiting) or '-'}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
