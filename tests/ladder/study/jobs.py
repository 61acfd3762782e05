"""Studies that jobs measure, as tests start, watch and disturb them."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from ladder.records.jobs import load_job
from ladder.records.run import load
from ladder.records.study import load_study

FOUR_POINTS = """
title = "Small"
stages = "numpy"
epochs = 3
metrics_every = 3
batch_size = 1
learning_rate = 0.01
rounds = 1
repeats = 2
remeasure = 0
profile = "none"
[vary]
hidden = [3, 4, 5, 6]
"""
PATIENCE_S = 120.0
Start = Callable[..., subprocess.Popen[str]]


def job_of(point: str, folder: Path) -> str:
    """The id of a point's job as soon as the point is being measured."""
    deadline = time.monotonic() + PATIENCE_S
    while not measuring(point, folder):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert load_job(point, folder).state == "running"
    return load_job(point, folder).job


def measuring(point: str, folder: Path) -> list[int]:
    """The process that measures a point of the study in this folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if b"--in-job" in words and {point.encode(), bytes(folder.absolute())} <= set(words):
            found.append(int(path.parent.name))
    return found


def verdicts(folder: Path) -> tuple[list[tuple[str, str]], dict[str, list[tuple[str, str]]]]:
    """The state of every point, and of the stages of each run."""
    points: list[tuple[str, str]] = [(point.name, point.status) for point in load_study(folder).points]
    runs = {path.parent.name: load(path).stages for path in folder.glob("*/results.json")}
    return points, {point: [(stage.name, stage.status) for stage in stages] for point, stages in sorted(runs.items())}
