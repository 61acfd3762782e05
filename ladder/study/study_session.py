"""A study in a folder: begun there or resumed, checked at every point before the first is measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from common.errors import UsageError
from ladder.machine.clock_lock import locked_clocks
from ladder.options.commands import MeasureStudy, Resume, ResumeStudy
from ladder.records.jobs import PointJob
from ladder.records.limits_record import LimitsRecord
from ladder.records.run import ResultsError, all_results, load, results_in
from ladder.records.study import INDEX, Point, Study, as_found, load_study, save_study
from ladder.run.observer import RunObserver
from ladder.run.preflight import dataset_of
from ladder.run.runner import Runner
from ladder.run.session import begin, check_same_data, check_same_machine, resume
from ladder.study.points import compile_points, due, measure_study, options_at
from ladder.study.study_file import read_study, varied_study, with_settings
from stages.registry import Entry


class StudyObserver(RunObserver, Protocol):
    """Watches a study's runs, and hears of each point that begins, or of all that jobs measure."""

    def point(self, name: str, jobs: int, jobs_after: int) -> None:
        """A point begins, with its expected jobs and those of all points after it."""

    def jobs(self, jobs: Sequence[PointJob], at_once: int) -> None:
        """How far each point is now that jobs measure, of which so many run at once."""


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
    if (folder / INDEX).exists() or any(folder.glob(f"*/{INDEX}")):
        raise UsageError(f"{folder}: holds a study; continue it with study --resume {folder}, or choose another --out")
