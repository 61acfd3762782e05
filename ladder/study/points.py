"""A study's points one after the other, each an ordinary run in a folder of its own, and an index of its progress.

The index is on disk before a point begins and after it has ended, and each run saves itself after every process. So
an interrupted study loses no measurement, and continues where it stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from common.errors import UsageError
from ladder.measure.protocol import Job
from ladder.options.run_options import RunOptions
from ladder.processes.worker_pool import Compilers
from ladder.records.study import Point, PointStatus, Study, save_study
from ladder.run.entries import stages_of
from ladder.run.observer import RunObserver
from ladder.run.orders import Orders
from ladder.run.runner import Runner
from ladder.run.scratch import scratch_folder
from ladder.study.study_file import point_options
from stages.registry import Entry

Measure = Callable[[Point, Path], str | None]
"""Measures a point into a folder, or returns the reason why it cannot be measured here."""
Announce = Callable[[str, int, int], None]
"""Hears of each point that begins: its name, its expected jobs, and the jobs of all points after it."""


def options_at(point: Point, entries: Mapping[str, Entry], data_dir: Path | None = None) -> RunOptions:
    """A point as the options of an ordinary run, its stages by name; another precision's stages are left out.

    UsageError, with the point's name, for settings that no run can have, or where no stage is left.
    """
    given = point_options(point)
    if data_dir is not None:
        given["data_dir"] = data_dir
    try:
        options = RunOptions(**given)
        options.problem()
        chosen = _chosen(point, options, entries)
    except UsageError as error:
        raise UsageError(f"{point.name}: {error}") from error
    return msgspec.structs.replace(options, stages=tuple(entry.stage.name for entry in chosen))


def due(study: Study, only: Sequence[str] | None) -> list[str]:
    """The names of the waiting points, or those of them that `only` lists.

    UsageError for a name that no point has.
    """
    names = [point.name for point in study.points]
    for name in only or ():
        if name not in names:
            raise UsageError(f"study --points: {name!r} is no point of {study.name}; its points are {', '.join(names)}")
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
    """Measure the points that wait, or those of them that `only` lists; save the index before and after each."""
    names = due(study, only)
    chosen = ((point.name, options_at(point, entries)) for point in study.points if point.name in names)
    jobs = {name: options.rounds * len(options.stages) for name, options in chosen}
    for index, point in enumerate(study.points):
        if point.name not in names:
            continue
        after = sum(jobs.get(later.name, 0) for later in study.points[index + 1 :])
        study = _with_status(study, index, "begun", folder)
        announce(point.name, jobs[point.name], after)
        reason = measure(point, folder / point.name)
        study = _with_status(study, index, "measured" if reason is None else "skipped", folder, reason)
    return study


def compile_points(runners: Mapping[str, Runner], folder: Path, timeout_s: float, observer: RunObserver) -> None:
    """Compile the stages of all these points side by side, before the first point is measured.

    The results of each point then hold its compile times, and the point continues from them.
    """
    with scratch_folder(folder, sum(runner.orders.scratch_bytes for runner in runners.values())) as scratch:
        jobs = {point: _compile_jobs(runner.orders, scratch / point) for point, runner in runners.items()}
        ranked = [(nth, point, *job) for point, of in jobs.items() for nth, job in enumerate(of.items())]
        ranked.sort(key=lambda job: (job[0], -len(job[3].problem.hidden)))  # long ones first: none is left at the end
        all_jobs = {f"{point}.{stage}": job for _, point, stage, job in ranked}
        with Compilers(all_jobs, scratch, folder / "logs", timeout_s) as compilers:
            if compilers.names:
                observer.step(f"compiling {len(all_jobs)} stages of {sum(map(bool, jobs.values()))} points")
                took_s = compilers.wait()
                for point, runner in runners.items():
                    runner.ledger.keep_compile_times({stage: took_s[f"{point}.{stage}"] for stage in jobs[point]})


def _compile_jobs(orders: Orders, folder: Path) -> dict[str, Job]:
    """The jobs that compile a point's stages, by stage; the data set is saved in the folder if there are any."""
    orders.skip_unrunnable()
    orders.dataset = folder
    jobs = {order.stage.name: order.job for order in orders.to_compile()}
    if jobs:
        orders.save_data(folder)
    return jobs


def _with_status(study: Study, index: int, status: PointStatus, folder: Path, reason: str | None = None) -> Study:
    points = list(study.points)
    points[index] = msgspec.structs.replace(points[index], status=status, reason=reason)
    study = msgspec.structs.replace(study, points=points)
    save_study(study, folder)
    return study


def _chosen(point: Point, options: RunOptions, entries: Mapping[str, Entry]) -> list[Entry]:
    chosen = stages_of(options, entries)
    precision = point.settings.get("precision")
    if precision is None:
        return chosen
    left = [entry for entry in chosen if entry.stage.precision == precision]
    if not left:
        raise UsageError(f"precision {precision}: none of its stages multiplies in it; see `run_ladder.py list`")
    return left
