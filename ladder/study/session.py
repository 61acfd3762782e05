"""A study in a folder: begun there or resumed, checked at every point before the first is measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from common.data.dataset import load_dataset
from common.errors import UsageError
from ladder.machine.clock_lock import locked_clocks
from ladder.options.commands import Resume, ResumeStudy
from ladder.options.commands import Study as NewStudy
from ladder.records.limits import LimitsRecord
from ladder.records.run import ResultsError, load
from ladder.records.study import INDEX, Point, Study, as_found, load_study, save_study
from ladder.run.entries import all_entries
from ladder.run.lock import alone_in
from ladder.run.runner import Runner
from ladder.run.session import Observer as RunObserver
from ladder.run.session import begin, check_same_machine, make_folder, resume
from ladder.study.points import compile_points, due, measure_study, options_at
from ladder.study.study_file import read_study, with_settings
from stages.registry import Entry


class Observer(RunObserver, Protocol):
    """Watches a study's runs, and hears of each point that begins."""

    def point(self, name: str, jobs: int, jobs_after: int) -> None:
        """A point begins, with its expected jobs and those of all points after it."""


@contextmanager
def opened(asked: NewStudy | ResumeStudy, observer: Observer, command: str) -> Iterator[StudySession]:
    """A new or a stopped study, which has its folder to itself until the block ends.

    UsageError for a study that cannot be, or cannot go on. `command` is the command line, recorded with every run.
    """
    entries, _ = all_entries()
    plan, folder = _resume(asked) if isinstance(asked, ResumeStudy) else _begin(asked, entries, observer, command)
    with alone_in(folder):
        if isinstance(asked, NewStudy):
            _refuse_begun(folder)  # once more: while the data was downloaded, another study may have begun here
        yield StudySession(plan, folder, asked.points, asked.data_dir, entries, observer, command)


def _begin(asked: NewStudy, entries: Mapping[str, Entry], observer: Observer, command: str) -> tuple[Study, Path]:
    """A new study in a folder of its own, checked at every point."""
    plan = read_study(asked.file, command, datetime.now(UTC).isoformat(timespec="seconds"))
    due(plan, asked.points)
    plan = with_settings(plan, asked.changes)
    points = [options_at(point, entries, asked.data_dir) for point in plan.points]
    folder = asked.out or Path("runs") / f"{plan.name}-{datetime.now().strftime('%Y%m%d-%H%M%S')}"
    _refuse_begun(folder)
    # Refused now rather than at every point.
    for data_dir in dict.fromkeys(options.data_dir for options in points):
        load_dataset(data_dir=data_dir, seed=0, progress=observer.download)
    for mhz in {options.lock_clocks for options in points}:
        with locked_clocks(mhz, observer.note):
            pass
    make_folder(folder)
    return plan, folder


def _resume(asked: ResumeStudy) -> tuple[Study, Path]:
    """A stopped study, on the machine on which it began."""
    folder = asked.resume
    plan = as_found(load_study(folder), folder)
    paths = (folder / point.name / "results.json" for point in plan.points)
    if (measured := next((path for path in paths if path.exists()), None)) is not None:
        check_same_machine(load(measured), folder)
    return plan, folder


@dataclass(frozen=True)
class StudySession:
    """A study that is ready to be measured."""

    plan: Study
    folder: Path
    only: Sequence[str] | None  # the chosen points; None for all that wait
    data_dir: Path | None
    entries: Mapping[str, Entry]
    observer: Observer
    command: str  # recorded with every run

    def measure(self) -> None:
        """Compile, then measure point by point; KeyboardInterrupt leaves a study that can be resumed."""
        wanted = due(self.plan, self.only)
        save_study(self.plan, self.folder)  # now, since the compilers take minutes and may be interrupted
        self._compile(wanted)
        measure_study(self.plan, self.folder, self.entries, self._measure_point, self.observer.point, wanted)

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

    def _measure_point(self, point: Point, folder: Path) -> str | None:
        """Run the ladder at a point, or continue it; returns the reason if the point is skipped."""
        has_begun = (folder / "results.json").exists()
        try:
            runner = self._runner(point)
        except (UsageError, ResultsError) as error:
            if has_begun:  # on another machine, or with another version
                raise
            return self._skipped(point, error)
        try:
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
        if (folder / "results.json").exists():
            asked = Resume(resume=folder, data_dir=options.data_dir)
            return resume(asked, self.entries, self.observer, limits)
        return begin(options, self.entries, folder, self.observer, self.command, limits)

    def _limits(self) -> LimitsRecord | None:
        """The GPU's limits as an earlier point measured them; they hold for all points."""
        found = (load(path).limits for path in self.folder.glob("*/results.json"))
        return next((limits for limits in found if limits is not None), None)


def _refuse_begun(folder: Path) -> None:
    if (folder / INDEX).exists():
        raise UsageError(f"{folder}: holds a study; continue it with study --resume {folder}, or choose another --out")
