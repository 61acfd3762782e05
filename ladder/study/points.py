"""A study's points one after the other, each an ordinary run in a folder of its own, and an index of how far it is.

The index is on disk before a point begins and after it has ended, and each run saves itself after every process. So
whatever ends a study, nothing that was measured is lost, and it goes on where it was.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from common.errors import UsageError
from common.problem import Problem
from ladder.options.parsers import ladder_parser, profilers
from ladder.processes.compilers import Compilers
from ladder.records.run import Settings
from ladder.records.study import Point, PointStatus, Study, save_study
from ladder.run.preflight import check_settings, check_time_cap
from ladder.run.runner import SCRATCH, Observer, Runner
from ladder.study.study_file import point_options
from stages.registry import Entry, select

Measure = Callable[[Point, Path], str | None]
"""Measures a point into a folder, or says why it cannot be done here."""
Announce = Callable[[str, int, int], None]
"""Told of each point that begins: its name, the jobs that it is expected to have, and those of all points after it."""


def run_options(point: Point, entries: Mapping[str, Entry]) -> argparse.Namespace:
    """A point as the options of an ordinary run; stages of another precision than it asks for are left out.

    UsageError, with the point's name, for settings that no run can have, or for stages of which none is left.
    """
    options = argparse.Namespace(**{**vars(ladder_parser().parse_args([])), **point_options(point)})
    try:
        chosen = _chosen(point, options.stages, entries)
        _check(options)
    except UsageError as error:
        raise UsageError(f"{point.name}: {error}") from error
    options.stages = ",".join(entry.stage.name for entry in chosen)
    return options


def due(study: Study, only: Sequence[str] | None) -> list[str]:
    """The names of the points that are to be measured: those that wait, or of them only some.

    UsageError for a name that no point has.
    """
    names = [point.name for point in study.points]
    for name in only or ():
        if name not in names:
            raise UsageError(f"study --points: {name!r} is no point of {study.name}; there are {', '.join(names)}")
    waiting = [point.name for point in study.points if point.status in ("waiting", "begun")]
    return [name for name in waiting if only is None or name in only]


def measure_study(
    study: Study,
    folder: Path,
    entries: Mapping[str, Entry],
    measure: Measure,
    announce: Announce,
    only: Sequence[str] | None = None,
) -> Study:
    """Measure the points that are not measured yet, or only some; the index is on disk before and after each."""
    names = due(study, only)
    jobs = {point.name: _jobs(run_options(point, entries)) for point in study.points if point.name in names}
    for index, point in enumerate(study.points):
        if point.name not in names:
            continue
        after = sum(jobs.get(later.name, 0) for later in study.points[index + 1 :])
        study = _noted(study, index, "begun", folder)
        announce(point.name, jobs[point.name], after)
        reason = measure(point, folder / point.name)
        study = _noted(study, index, "measured" if reason is None else "skipped", folder, reason)
    return study


def compile_points(runners: Mapping[str, Runner], folder: Path, timeout_s: float, observer: Observer) -> None:
    """Have the stages of all these points, by their names, compile side by side, before the first of them is measured.

    What each took is then in its point's results, which the point goes on from.
    """
    for left in folder.glob(f"{SCRATCH}*"):  # by a study that was killed
        shutil.rmtree(left, ignore_errors=True)
    # Resolved, since the processes run in another folder.
    with TemporaryDirectory(prefix=SCRATCH, dir=folder.resolve()) as name:
        jobs = {point: runner.compile_jobs(Path(name) / point) for point, runner in runners.items()}
        by_both = {f"{point}.{stage}": job for point, of in jobs.items() for stage, job in of.items()}
        with Compilers(by_both, Path(name), folder / "logs", timeout_s) as compilers:
            if compilers.names:
                observer.step(f"compiling {len(by_both)} stages of {sum(map(bool, jobs.values()))} points")
                took_s = compilers.wait()
                for point, runner in runners.items():
                    runner.record_compile_times({stage: took_s[f"{point}.{stage}"] for stage in jobs[point]})


def _noted(study: Study, index: int, status: PointStatus, folder: Path, reason: str | None = None) -> Study:
    points = list(study.points)
    points[index] = msgspec.structs.replace(points[index], status=status, reason=reason)
    study = msgspec.structs.replace(study, points=points)
    save_study(study, folder)
    return study


def _jobs(options: argparse.Namespace) -> int:
    rounds: int = options.rounds
    return rounds * len(options.stages.split(","))


def _chosen(point: Point, stages: str, entries: Mapping[str, Entry]) -> list[Entry]:
    chosen = select(stages, dict(entries))
    precision = point.settings.get("precision")
    if precision is None:
        return chosen
    left = [entry for entry in chosen if entry.stage.precision == precision]
    if not left:
        raise UsageError(f"precision {precision}: none of its stages multiplies in it; see --list")
    return left


def _check(options: argparse.Namespace) -> None:
    """Raise UsageError for what no run can have, before the first point is measured and not at the fifth."""
    settings = Settings(
        options.rounds,
        options.repeats,
        options.warmups,
        options.budget,
        options.timeout,
        profilers(options),
        remeasure=options.remeasure,
        precision=options.precision,
        curve_steps=options.curve_steps,
        at_once=options.at_once,
        lock_clocks_mhz=options.lock_clocks,
    )
    check_settings(settings)
    check_time_cap(options.time_cap, options.precision)
    Problem(
        inputs=1,
        classes=1,
        hidden=options.hidden,
        batch_size=options.batch_size,
        learning_rate=options.learning_rate,
        epochs=options.epochs,
        seed=options.seed,
        metrics_every=options.metrics_every,
        validate_every=options.validate_every,
    )
