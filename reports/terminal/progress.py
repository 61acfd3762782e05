"""What is seen while the ladder runs: a bar with the time left, and a line for every job that has ended.

A job is one stage in one round. On a terminal the bar is redrawn in place; anywhere else (a file, a pipe, CI) every
event is one plain line.
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
    """The view that the runner reports to; used as a context manager, so that the terminal is given back."""

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
        self._spent_s = 0.0  # by the finished jobs
        self._started_s = 0.0
        self._job = ""
        self._before = (0, 0.0)  # jobs of a study's earlier points, and the seconds that they took
        self._expected, self._after = 0, 0  # jobs of a study's point, and of those after it, as they were announced
        self._coming = 0.0  # jobs of the points after this one, as far as this one tells how many are skipped

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.end()

    def point(self, name: str, jobs: int, jobs_after: int) -> None:
        """A study comes to one of its points, a run of so many jobs; so many more are in the points after it."""
        self._end_run()
        self._expected, self._after, self._coming = jobs, jobs_after, float(jobs_after)
        left = self._study_left(jobs + jobs_after)
        self._print(f"{name}: {left} left of the study" if left else name)

    def _end_run(self) -> None:
        """Put the jobs of a run to those before it."""
        jobs, seconds = self._before
        self._before = (jobs + self._finished, seconds + self._spent_s)
        self._total, self._finished, self._spent_s = 0, 0, 0.0
        self._progress.stop()
        if self._bar is not None:
            self._progress.remove_task(self._bar)
            self._bar = None

    def _study_left(self, jobs: float) -> str:
        """How long so many jobs take if they take what those before them did; empty while none has ended."""
        done, seconds = self._before[0] + self._finished, self._before[1] + self._spent_s
        return f"about {numbers.duration(seconds / done * jobs)}" if done else ""

    def begin(self, total_jobs: int, stages: list[str]) -> None:
        """The ladder starts: so many jobs, of these stages."""
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
        self._total = max(self._total, self._finished + 1)  # what is measured again at once is one more
        self._job = f"{stage}, round {round} of {rounds}" if rounds > 1 else stage
        if not self._console.is_terminal:
            self._print(f"[{self._finished + 1}/{self._total}] {self._job}")
        self._update(self._job)

    def step(self, what: str) -> None:
        """What goes on now, in the job under way or before the first one: `checking against the oracle`."""
        if not self._job and not self._console.is_terminal:
            self._print(what)
        self._update(f"{self._job}: {what}" if self._job else what)

    def finish(self, stage: str, status: str, text: str) -> None:
        """A job has ended; the text is its time or the reason why there is none."""
        self._finished += 1
        self._spent_s += self._clock() - self._started_s
        line = Text(f"{stage:{self._name_width}}  ").append(f"{status:7}", STATUS_STYLE.get(status, ""))
        self._print(line.append(f"  {text}"))
        self._update("")

    def note(self, text: str) -> None:
        """Something worth a line of its own."""
        self._print(text)

    def download(self, done: int, total: int | None, name: str) -> None:
        """So many bytes of a file have arrived; the total is None where the server does not tell."""
        if name not in self._downloads:
            if not self._console.is_terminal:
                self._print(f"downloading {name}" + (f" ({numbers.size(total)})" if total else ""))
            self._downloads[name] = self._progress.add_task(f"downloading {name}", total=total, text="")
            self._progress.start()
        text = f"{numbers.size(done)} of {numbers.size(total)}" if total else numbers.size(done)
        self._progress.update(self._downloads[name], completed=done, total=total, text=text)

    def end(self) -> None:
        """Take the bar away; harmless when there is none."""
        self._progress.stop()

    def _update(self, description: str) -> None:
        if self._bar is not None:
            text = f"{self._finished} of {self._total}{self._time_left()}"
            self._progress.update(self._bar, completed=self._finished, description=description, text=text)

    def _time_left(self) -> str:
        """What remains if the other jobs take as long as the finished ones did on average."""
        left = self._total - self._finished
        if self._finished == 0 or left <= 0:
            return ""
        here = f", about {numbers.duration(self._spent_s / self._finished * left)} left"
        return f"{here}, of the study {self._study_left(left + self._coming)}" if self._expected else here

    def _print(self, line: str | Text) -> None:
        """One line, however long: a file is not wrapped, and a terminal wraps by itself."""
        self._console.print(Text(line) if isinstance(line, str) else line, soft_wrap=True)

    def _forget_downloads(self) -> None:
        for task in self._downloads.values():
            self._progress.remove_task(task)
        self._downloads.clear()
