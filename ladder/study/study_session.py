"""A study in a folder: begun there or resumed, and its points one after the other, each a run in a folder of its own.

All points are checked before the first is measured. The index is on disk before a point begins and after it has ended,
and each run saves itself after every process. So an interrupted study loses no measurement, and continues where it
stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

import msgspec

from common.errors import UsageError
from ladder.machine.clock_lock import locked_clocks
from ladder.measure.protocol import Job
from ladder.options.commands import MeasureStudy, Resume, ResumeStudy
from ladder.options.run_options import RunOptions
from ladder.processes.worker_pool import Compilers
from ladder.records.jobs import PointJob
from ladder.records.limits_record import LimitsRecord
from ladder.records.run import ResultsError, all_results, load, results_in
from ladder.records.study import INDEX, Point, PointStatus, Study, as_found, load_study, save_study
from ladder.run.entries import stages_of
from ladder.run.folders import scratch_folder
from ladder.run.observer import RunObserver
from ladder.run.orders import Orders
from ladder.run.preflight import dataset_of
from ladder.run.runner import Runner
from ladder.run.session import begin, check_same_data, check_same_machine, resume
from ladder.study.study_file import point_options, read_study, varied_study, with_settings
from stages.registry import Entry

Measure = Callable[[Point, Path], str | None]
"""Measures a point into a folder, or returns the reason why it cannot be measured here."""
Announce = Callable[[str, int, int], None]
"""Hears of each point that begins: its name, its expected jobs, and the jobs of all points after it."""


def options_at(point: Point, entries: Mapping[str, Entry], data_dir: Path | None = None) -> RunOptions:
    """A point as the options of an ordinary run, its stages by name.

    UsageError, with the point's name, for settings that no run can have.
    """
    given = point_options(point)
    if data_dir is not None:
        given["data_dir"] = data_dir
    try:
        options = RunOptions(**given)
        options.problem()
        chosen = stages_of(options, entries)
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


class StudyObserver(RunObserver, Protocol):
    """Watches a study's runs, and hears of each point that begins, or of all that jobs measure."""

    def point(self, name: str, jobs: int, jobs_after: int) -> None:
        """A point begins, with its expected jobs and those of all points after it."""

    def jobs(self, jobs: Sequence[PointJob], at_once: int) -> None:
        """How far each point is now that jobs measure, `at_once` at a time."""


def begin_study(
    asked: MeasureStudy, entries: Mapping[str, Entry], observer: StudyObserver, command: str
) -> tuple[Study, list[dict[str, str]]]:
    """A new study, checked at every point, and its data as `data_hashes` has it."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    plan = varied_study(asked.vary, command, now) if asked.file is None else read_study(asked.file, command, now)
    due(plan, asked.points)
    if fixed := [key for key in plan.varied if key in asked.changes]:
        raise UsageError(f"--{fixed[0].replace('_', '-')}: is varied by this study; leave it out")
    plan = with_settings(plan, asked.changes)
    points = [options_at(point, entries, asked.data_dir) for point in plan.points]
    if asked.out is not None:
        refuse_begun(asked.out)
    data = data_hashes(plan, entries, asked.data_dir, observer)  # refused now rather than at every point
    for mhz in {options.lock_clocks for options in points if asked.on != "slurm"}:
        with locked_clocks(mhz, observer.note):
            pass
    return plan, data


def data_hashes(
    plan: Study, entries: Mapping[str, Entry], data_dir: Path | None, observer: StudyObserver
) -> list[dict[str, str]]:
    """The SHA-256 of each data set of a study; UsageError for one that cannot be used."""
    folders = dict.fromkeys(options_at(point, entries, data_dir).data_dir for point in plan.points)
    return [dataset_of(data_dir=folder, seed=0, observer=observer).sha256 for folder in folders]


def resume_study(asked: ResumeStudy, entries: Mapping[str, Entry], observer: StudyObserver) -> tuple[Study, Path]:
    """A stopped study, on the machine and the data with which it began."""
    folder = asked.resume
    plan = as_found(load_study(folder), folder)
    checked = set[Path | None]()
    for point in (point for point in plan.points if results_in(folder / point.name).exists()):
        results, data_dir = load(folder / point.name), options_at(point, entries, asked.data_dir).data_dir
        if not checked:
            check_same_machine(results, folder)
        if data_dir not in checked:  # synthetic digits depend on the seed, so that it must be this point's
            dataset = dataset_of(data_dir=data_dir, seed=results.problem.seed, observer=observer)
            check_same_data(results, dataset, folder)
        checked.add(data_dir)
    return plan, folder


@dataclass(frozen=True)
class StudySession:
    """A study that is ready to be measured."""

    plan: Study
    folder: Path
    only: Sequence[str] | None  # the chosen points; None for all that wait
    data_dir: Path | None
    entries: Mapping[str, Entry]
    observer: StudyObserver
    command: str  # recorded with every run

    def measure(self) -> list[Path]:
        """Compile, then measure point by point; returns the folders of studies to render, here this one.

        KeyboardInterrupt leaves a study that can be resumed.
        """
        wanted = due(self.plan, self.only)
        save_study(self.plan, self.folder)  # now, since the compilers take minutes and may be interrupted
        self._compile(wanted)
        measure_study(self.plan, self.folder, self.entries, self.measure_point, self.observer.point, wanted)
        return [self.folder]

    def check_measured(self) -> None:
        """Raise UsageError if all wanted points were skipped."""
        points = load_study(self.folder).points
        asked = due(self.plan, self.only)
        if all(point.status == "skipped" for point in points if not asked or point.name in asked):
            raise UsageError(f"{self.folder}: no point could be measured; study.json has the reasons")

    def _compile(self, wanted: Sequence[str]) -> None:
        """Compile the wanted points' stages side by side, where several points have stages that compile for long."""
        runners: dict[str, Runner] = {}
        timeouts = [0.0]
        for point in self.plan.points:
            options = options_at(point, self.entries)
            stages = (self.entries[name].stage for name in options.stages)
            compiling = any(stage.compiles_within or stage.first_updates_within for stage in stages)
            if point.name in wanted and compiling:
                timeouts.append(options.timeout)
                with suppress(UsageError, ResultsError):  # reported when the point's turn comes
                    runners[point.name] = self._runner(point)
        if len(runners) > 1:
            compile_points(runners, self.folder, max(timeouts), self.observer)

    def measure_point(
        self, point: Point, folder: Path, prepare: Callable[[Runner], None] = lambda _: None
    ) -> str | None:
        """Run the ladder at a point, or continue it; returns the reason if the point is skipped.

        UsageError or ResultsError for a run that cannot be continued here.
        """
        has_begun = results_in(folder).exists()
        try:
            runner = self._runner(point)
        except (UsageError, ResultsError) as error:
            if has_begun:  # on another machine, or with another version
                raise
            return self._skipped(point, error)
        try:
            prepare(runner)
            runner.run(self.observer)
        except UsageError as error:
            return self._skipped(point, error)
        return None

    def _skipped(self, point: Point, error: Exception) -> str:
        self.observer.note(f"{point.name}: skipped: {error}")
        return str(error)

    def _runner(self, point: Point) -> Runner:
        """The run of a point, new or resumed."""
        folder, limits = self.folder / point.name, self._limits()
        options = options_at(point, self.entries, self.data_dir)
        if results_in(folder).exists():
            asked = Resume(resume=folder, data_dir=options.data_dir)
            return resume(asked, self.entries, self.observer, limits)
        runner, _ = begin(options, self.entries, folder, self.observer, self.command, limits)
        return runner

    def _limits(self) -> LimitsRecord | None:
        """The GPU's limits as an earlier point measured them; they hold for all points."""
        return next((limits for file in all_results(self.folder) if (limits := load(file).limits) is not None), None)


def refuse_begun(folder: Path) -> None:
    """Raise UsageError for a folder that holds another study."""
    if (folder / INDEX).exists():
        raise UsageError(f"{folder}: holds a study; continue it with study --resume {folder}, or choose another --out")
