"""The live view of a run: a bar with the time left, and a line for every finished job.

A job is one stage in one round. A terminal redraws the bar in place; a file, a pipe or CI gets one plain line an event.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn
from rich.text import Text

from reports.facts import numbers
from reports.terminal.tables import STATUS_STYLE


class LiveView:
    """The view that the runner reports to; as a context manager it restores the terminal."""

    def __init__(self, console: Console | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console or Console(highlight=False)
        self._clock = clock
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[text]}", markup=False),
            console=self._console,
            transient=True,
            disable=not self._console.is_terminal,
        )
        self._bar: TaskID | None = None
        self._downloads: dict[str, TaskID] = {}
        self._name_width = 0
        self._total = 0
        self._finished = 0
        self._spent_s = 0.0  # in finished jobs
        self._started_s = 0.0
        self._job = ""
        self._before = (0, 0.0)  # jobs of a study's earlier points, and their seconds
        self._expected, self._after = 0, 0  # announced jobs of a study's point, and of the points after it
        self._coming = 0.0  # likely jobs of the points after this one, from this point's share of skipped jobs

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.end()

    def point(self, name: str, jobs: int, jobs_after: int) -> None:
        """A study starts one of its points, with the jobs announced for it and for all points after it."""
        self._end_run()
        self._expected, self._after, self._coming = jobs, jobs_after, float(jobs_after)
        left = self._study_left(jobs + jobs_after)
        self._print(f"{name}: {left} left of the study" if left else name)

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

    def begin(self, total_jobs: int, stages: list[str]) -> None:
        """The ladder starts with this number of jobs, of these stages."""
        self._forget_downloads()
        self._coming = self._after * min(total_jobs / self._expected, 1.0) if self._expected else 0.0
        self._name_width = max(map(len, stages), default=0)
        self._total, self._finished, self._spent_s, self._job = total_jobs, 0, 0.0, ""
        self._bar = self._progress.add_task("", total=total_jobs, text="")
        self._progress.start()
        self._print(f"{numbers.count(total_jobs, 'job')}: {', '.join(stages)}")

    def start(self, stage: str, round: int, rounds: int) -> None:
        """A stage starts in a round, counted from 1."""
        self._started_s = self._clock()
        self._total = max(self._total, self._finished + 1)  # a process that is measured again is one more job
        self._job = f"{stage}, round {round} of {rounds}" if rounds > 1 else stage
        if not self._console.is_terminal:
            self._print(f"[{self._finished + 1}/{self._total}] {self._job}")
        self._update(self._job)

    def step(self, what: str) -> None:
        """The current step, in a job or before the first one: `checking against the oracle`."""
        if not self._job and not self._console.is_terminal:
            self._print(what)
        self._update(f"{self._job}: {what}" if self._job else what)

    def finish(self, stage: str, status: str, text: str) -> None:
        """A job has ended; the text is its time, or the reason why it has none."""
        self._finished += 1
        self._spent_s += self._clock() - self._started_s
        line = Text(f"{stage:{self._name_width}}  ").append(f"{status:7}", STATUS_STYLE.get(status, ""))
        self._print(line.append(f"  {text}"))
        self._update("")

    def note(self, text: str) -> None:
        """Print a message on its own line."""
        self._print(text)

    def download(self, done: int, total: int | None, name: str) -> None:
        """The bytes of a file that have arrived; the total is None if the server does not tell it."""
        if name not in self._downloads:
            if not self._console.is_terminal:
                self._print(f"downloading {name}" + (f" ({numbers.size(total)})" if total else ""))
            self._downloads[name] = self._progress.add_task(f"downloading {name}", total=total, text="")
            self._progress.start()
        text = f"{numbers.size(done)} of {numbers.size(total)}" if total else numbers.size(done)
        self._progress.update(self._downloads[name], completed=done, total=total, text=text)

    def end(self) -> None:
        """Remove the bar, if there is one."""
        self._progress.stop()

    def _update(self, description: str) -> None:
        if self._bar is not None:
            text = f"{self._finished} of {self._total}{self._time_left()}"
            self._progress.update(self._bar, completed=self._finished, description=description, text=text)

    def _time_left(self) -> str:
        """The time left if the other jobs take the mean of the finished ones."""
        left = self._total - self._finished
        if self._finished == 0 or left <= 0:
            return ""
        here = f", about {numbers.duration(self._spent_s / self._finished * left)} left"
        return f"{here}, of the study {self._study_left(left + self._coming)}" if self._expected else here

    def _print(self, line: str | Text) -> None:
        """Print one line without wrapping: a terminal wraps by itself, and a file must not."""
        self._console.print(Text(line) if isinstance(line, str) else line, soft_wrap=True)

    def _forget_downloads(self) -> None:
        for task in self._downloads.values():
            self._progress.remove_task(task)
        self._downloads.clear()
