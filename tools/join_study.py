"""Points of a study that were measured apart (`study FILE --points ...`), on several GPUs say, put into one folder.

    python -m tools.join_study FOLDER PART...

Copies each point that is measured or was skipped in a part, and not yet in the folder; a folder that is not there
begins as the first part's index. Parts stay as they are. Ends with 2, in a line, where a part is of other points or
settings.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import msgspec

from common.errors import UsageError
from ladder.results import ResultsError
from ladder.study_data import INDEX, Point, Study, load_study, save_study

DONE = ("measured", "skipped")


def joined(study: Study, folder: Path, part: Path) -> Study:
    """The study with what only the part has done of it, whose runs are then in the folder, too."""
    points = load_study(part).points
    if [_alike(point) for point in points] != [_alike(point) for point in study.points]:
        raise UsageError(f"{part}: a study of other points or settings than {folder}; measure it anew with its file")
    for index, (ours, theirs) in enumerate(zip(study.points, points, strict=True)):
        if ours.status in DONE or theirs.status not in DONE:
            continue
        if (part / theirs.name).exists():
            shutil.rmtree(folder / theirs.name, ignore_errors=True)  # what an interrupted run left
            shutil.copytree(part / theirs.name, folder / theirs.name)
        study = msgspec.structs.replace(study, points=[*study.points[:index], theirs, *study.points[index + 1 :]])
        save_study(study, folder)
    return study


def _asked(point: Point) -> Point:
    return msgspec.structs.replace(point, status="waiting", reason=None)


def _alike(point: Point) -> Point:
    """What has to be the same; a study's file may ask for other stages by now, of which each run has its own."""
    settings = {name: value for name, value in point.settings.items() if name != "stages"}
    return msgspec.structs.replace(_asked(point), settings=settings)


def main(argv: list[str]) -> int:
    """Join, and say what still waits."""
    if len(argv) < 2:
        print("usage: python -m tools.join_study FOLDER PART...", file=sys.stderr)
        return 2
    folder, *parts = map(Path, argv)
    try:
        if not (folder / INDEX).exists():
            begun = load_study(parts[0])
            folder.mkdir(parents=True, exist_ok=True)
            save_study(msgspec.structs.replace(begun, points=[_asked(point) for point in begun.points]), folder)
        study = load_study(folder)
        for part in parts:
            study = joined(study, folder, part)
    except (UsageError, ResultsError) as error:
        print(f"join_study: {error}", file=sys.stderr)
        return 2
    waiting = [point.name for point in study.points if point.status not in DONE]
    done = len(study.points) - len(waiting)
    print(f"{folder}: {done} of {len(study.points)} points; waiting: {', '.join(waiting) or '-'}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
