"""The live view of a run: a bar with the time left, and a line for every finished job.

A job is one stage in one round. A terminal redraws the bar in place; a file, a pipe or CI gets plain lines. There, a
job's line begins when the job does, and its time follows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, SpinnerColumn, Task, TaskID, TextColumn
from rich.table import Column
from rich.text import Text

from ladder.records.jobs import PointJob
from reports.facts import numbers
from reports.facts.run_table import skipped_in_words
from reports.terminal.jobs_view import JobsView
from reports.writers.console import STATUS_STYLE, is_live, say, standard

ROOMY = 100  # columns; from here on there is room for a bar


class LiveView:
    """The view that the runner reports to; as a context manager it restores the terminal."""

    def __init__(self, console: Console | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = standard(console)
        self._clock = clock
        self._is_live = is_live(self._console)
        self._jobs = JobsView(self._console)
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True, overflow="ellipsis")),
            *([BarColumn(bar_width=24)] if self._console.width >= ROOMY else []),
            _Waited(self._waited, table_column=Column(no_wrap=True)),
            TextColumn("{task.fields[text]}", markup=False, table_column=Column(no_wrap=True)),
            console=self._console,
            transient=True,
            disable=not self._is_live,
        )
        self._bar: TaskID | None = None
        self._downloads: dict[str, TaskID] = {}
        self._point = ""  # of a study
        self._total = 0
        self._finished = 0
        self._spent_s = 0.0  # in finished jobs
        self._started_s: float | None = None  # None: no job runs
        self._job = ""
        self._pending = ""  # a job's line that a file has without its end
        self._before = (0, 0.0)  # jobs of a study's earlier points, and their seconds
        self._expected, self._after = 0, 0  # announced jobs of a study's point, and of the points after it
        self._coming = 0.0  # likely jobs of the points after this one, from this point's share of skipped jobs

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def point(self, name: str, jobs: int, jobs_after: int) -> None:
        """A study starts one of its points, with the jobs announced for it and for all points after it."""
        self._end_run()
        self._point = name
        self._expected, self._after, self._coming = jobs, jobs_after, float(jobs_after)
        left = self._study_left(jobs + jobs_after)
        self._print(f"{name}: {left} left of the study" if left else name)

    def jobs(self, jobs: Sequence[PointJob], at_once: int) -> None:
        """How far the points are that jobs measure, `at_once` of them at a time."""
        self._jobs.show(jobs, at_once)

    def _end_run(self) -> None:
        """Count a run's jobs as finished ones of the study."""
        jobs, seconds = self._before
        self._before = (jobs + self._finished, seconds + self._spent_s)
        self._total, self._finished, self._spent_s = 0, 0, 0.0
        self._progress.stop()
        if self._bar is not None:
            self._progress.remove_task(self._bar)
            self._bar = None

    def _study_left(self, jobs: float) -> str:
        """The time for so many jobs at the mean of the study's finished ones; empty before the first."""
        done, seconds = self._before[0] + self._finished, self._before[1] + self._spent_s
        return f"about {numbers.duration(seconds / done * jobs)}" if done else ""

    def skip(self, reasons: Mapping[str, str]) -> None:
        """These stages are skipped, by name: one sentence for all of them."""
        self._say(skipped_in_words(reasons))

    def begin(self, total_jobs: int, stages: list[str], why: str = "") -> None:
        """The ladder starts with this number of jobs, of these stages; `why` they follow the ones announced before."""
        self._forget_downloads()
        self._coming = self._after * min(total_jobs / self._expected, 1.0) if self._expected else 0.0
        lasts = self._lasts(total_jobs) if why else ""
        self._total, self._finished, self._spent_s, self._job = total_jobs, 0, 0.0, ""
        if not total_jobs:
            self._print("Nothing is left to measure.")
            return
        if self._bar is None:
            self._bar = self._progress.add_task("", total=total_jobs, text="")
        self._progress.start()
        more = f" more{lasts}, {why}" if why else ""
        self._say(f"{numbers.count(total_jobs, 'measurement')}{more}: {numbers.brief(stages)}")

    def leave_out(self, stages: list[str], why: str) -> None:
        """One announced job of each of these stages is not done."""
        self._total -= len(stages)
        self._print(f"without {numbers.listing(stages)} in {why}")
        self._update("")

    def _lasts(self, jobs: int) -> str:
        """How long so many jobs last at the mean of the finished ones: `, about 40 s`; empty before the first."""
        return f", about {numbers.duration(self._spent_s / self._finished * jobs)}" if self._spent_s else ""

    def start(self, stage: str, round: int, rounds: int, attempt: int = 1, attempts: int = 1) -> None:
        """A stage starts in a round, for the `attempt`th time; both are counted from 1."""
        self._started_s = self._clock()
        self._total = max(self._total, self._finished + 1)  # a process that is measured again is one more job
        which = [f"round {round} of {rounds}"] if rounds > 1 else []
        which += [f"try {attempt} of {attempts}"] if attempt > 1 else []
        self._job = ", ".join([stage, *which])
        if not self._is_live:
            self._end_line()
            self._pending = self._label(stage)
            self._console.print(Text(self._pending), end="", soft_wrap=True)
        self._update(self._job)

    def step(self, what: str) -> None:
        """The current step, in a job or before the first one: `checking against float64`."""
        if not self._job and not self._is_live:
            self._print(what)
        self._update(f"{self._job}: {what}" if self._job else what)

    def finish(
        self, stage: str, status: str, text: str, step_us: float | None = None, *, disturbed: bool = False
    ) -> None:
        """A job has ended; the line tells its own time of a step, or a text without one."""
        label, told = self._label(stage), Text()
        self._finished += 1
        self._spent_s += self._clock() - (self._started_s or 0.0)
        self._started_s = None
        if self._pending != label:
            self._end_line()
            told.append(label)
        self._pending = ""
        told.append(": ")
        if step_us is not None:
            told.append(f"{numbers.microseconds(step_us)} us/step", "bold").append(", disturbed" * disturbed, "yellow")
        else:
            told.append(status, STATUS_STYLE.get(status, "")).append(f", {text}" if text else "")
        self._console.print(told, soft_wrap=True)
        self._job = ""
        self._update("")

    def _label(self, stage: str) -> str:
        """The job of a stage: `[3/10] hidden-64, numpy, round 1 of 2`."""
        job = self._job if self._job.partition(",")[0] == stage else stage  # side by side, any stage may end
        return f"[{self._finished + 1}/{self._total}] {f'{self._point}, ' if self._point else ''}{job}"

    def note(self, text: str) -> None:
        """Print a message on its own line; during a job of a study, it names the point."""
        self._print(f"{self._point}, {text}" if self._point and self._started_s is not None else text)

    def download(self, done: int, total: int | None, name: str) -> None:
        """The bytes of a file that have arrived; the total is None if the server does not tell it."""
        if name not in self._downloads:
            if not self._is_live:
                self._print(f"downloading {name}" + (f" ({numbers.size(total)})" if total else ""))
            self._downloads[name] = self._progress.add_task(f"downloading {name}", total=total, text="")
            self._progress.start()
        text = f"{numbers.size(done)} of {numbers.size(total)}" if total else numbers.size(done)
        self._progress.update(self._downloads[name], completed=done, total=total, text=text)

    def end(self) -> None:
        """Remove the bar, if there is one, and end the line of a job that an error cut short."""
        self._progress.stop()
        self._end_line()

    def _update(self, description: str) -> None:
        if self._bar is not None:
            self._progress.update(
                self._bar,
                total=self._total,
                completed=self._finished,
                description=f"[{min(self._finished + 1, self._total)}/{self._total}] {description}",
                text=self._time_left(),
            )

    def _waited(self) -> str:
        """How long the current job has taken, before the time left: `(12 s),`."""
        if self._started_s is None:
            return ""
        return f"({numbers.duration(self._clock() - self._started_s)})" + "," * bool(self._time_left())

    def _time_left(self) -> str:
        """The time left if the other jobs take the mean of the finished ones."""
        left = self._total - self._finished
        if self._finished == 0 or left <= 0:
            return ""
        here = f"about {numbers.duration(self._spent_s / self._finished * left)} left"
        return f"{here}, of the study {self._study_left(left + self._coming)}" if self._expected else here

    def _print(self, line: str) -> None:
        """Print one line without wrapping: a terminal wraps by itself, and a file must not."""
        self._end_line()
        self._console.print(Text(line), soft_wrap=True)

    def _say(self, text: str) -> None:
        """Print a sentence that is broken between words, as it may be long."""
        self._end_line()
        say(self._console, text)

    def _end_line(self) -> None:
        """End a job's line that waits for its time."""
        if self._pending:
            self._pending = ""
            self._console.print()

    def _forget_downloads(self) -> None:
        for task in self._downloads.values():
            self._progress.remove_task(task)
        self._downloads.clear()


class _Waited(ProgressColumn):
    """How long the current job has taken, read at every redraw."""

    def __init__(self, read: Callable[[], str], table_column: Column) -> None:
        super().__init__(table_column)
        self._read = read

    def render(self, task: Task) -> Text:  # noqa: ARG002, it is the view's clock that counts
        """The time as the view tells it."""
        return Text(self._read())
