"""Measuring the points of a study: which ones are measured, and the state of the index meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest

from common.errors import UsageError
from ladder.records.study import Point, PointStatus, Study, load_study
from ladder.study.points import due, measure_study
from stages.registry import load_all
from tests.ladder.harness import NUMPY

ENTRIES = load_all([NUMPY, "tests.planted:SLOW"])


def study(*statuses: PointStatus) -> Study:
    points = [
        Point(f"seed-{seed}", {"seed": seed}, {"seed": seed, "stages": "all", "rounds": seed + 1}, status)
        for seed, status in enumerate(statuses)
    ]
    return Study("s", "S", "", "now", "command", ["seed"], points)


def test_only_waiting_and_begun_points_are_measured(tmp_path: Path) -> None:
    measured: list[str] = []
    announced: list[tuple[str, int, int]] = []

    def measure(point: Point, folder: Path) -> str | None:
        assert folder == tmp_path / point.name
        assert next(one for one in load_study(tmp_path).points if one.name == point.name).status == "begun"
        measured.append(point.name)
        return "no room" if point.name == "seed-3" else None

    begun = study("measured", "begun", "skipped", "waiting", "waiting")
    done = measure_study(begun, tmp_path, ENTRIES, measure, lambda *event: announced.append(event))
    assert measured == ["seed-1", "seed-3", "seed-4"]
    assert announced == [
        ("seed-1", 4, 8 + 10),
        ("seed-3", 8, 10),
        ("seed-4", 10, 0),
    ]  # jobs are rounds times two stages
    assert [point.status for point in done.points] == ["measured", "measured", "skipped", "skipped", "measured"]
    assert done.points[3].reason == "no room"
    assert load_study(tmp_path) == done


def test_an_interrupted_study_leaves_a_whole_index(tmp_path: Path) -> None:
    def interrupted(point: Point, folder: Path) -> str | None:
        if point.name == "seed-1":
            raise KeyboardInterrupt
        return None

    with pytest.raises(KeyboardInterrupt):
        measure_study(study("waiting", "waiting", "waiting"), tmp_path, ENTRIES, interrupted, lambda *_: None)
    assert [point.status for point in load_study(tmp_path).points] == ["measured", "begun", "waiting"]


def test_only_the_requested_points_are_measured(tmp_path: Path) -> None:
    measured: list[str] = []
    announced: list[tuple[str, int, int]] = []

    def measure(point: Point, folder: Path) -> None:
        measured.append(point.name)

    begun = study("measured", "waiting", "waiting", "begun")
    only = ["seed-3", "seed-1", "seed-0"]
    with pytest.raises(UsageError, match="--points: 'seed-7' is no point of s; its points are seed-0, seed-1"):
        due(begun, ["seed-0", "seed-7"])
    measure_study(begun, tmp_path, ENTRIES, measure, lambda *event: announced.append(event), only)
    assert measured == ["seed-1", "seed-3"]
    assert announced == [("seed-1", 4, 8), ("seed-3", 8, 0)]
    assert [point.status for point in load_study(tmp_path).points] == ["measured", "measured", "waiting", "measured"]
