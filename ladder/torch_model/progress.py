"""What a run over a user's model does now, in a few words for its user, and how long it may still take.

The estimate is of what the run itself has shown: how long its first process took to start, to judge and to time a rung.
Only what a compiler takes is assumed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from ladder.records.torch_run import FIRST_ROW, TorchRung
from ladder.torch_model.judge import FIRST, FLOAT64_RUN, LATE
from stages.torch.training_step import Rung

SHOWN = 2  # names of rungs that prepare
COMPILING_S, CACHED_S = 20.0, 6.0  # with Inductor: 10 to 40 s cold, and 4 to 8 s with its code on disk
IN_FLOAT64 = 1  # more training's time that the one in float64 takes
OWN = 2  # trainings' time that the first row takes then: one that is judged, and its timed runs
BUSY = 10  # times what eager's fastest first step foretells its trainings took on two busy cores


class TorchObserver(Protocol):
    """Whoever shows a run as it goes on."""

    def note(self, text: str) -> None:
        """Something that the user should know."""

    def doing(self, phase: str, part: str = "", left_s: Sequence[float] = (), until: str = "") -> None:
        """A phase, the part of it that has begun, and the seconds until the end, or until something else.

        Two numbers are the least and the most that they may be, none that nobody knows.
        """

    def row(self, rung: TorchRung, eager: TorchRung | None, processes: int) -> None:
        """A rung is timed, in one of so many processes, or has got its verdict without a time."""


Process = tuple[int, Sequence[Rung]]
"""The round of a process, and its rungs."""


@dataclass
class Pace:
    """Seconds that parts of this run take."""

    start_s: float = 0.0  # from the start of a process until it has read the user's file
    judge_s: float = 0.0  # a training of eager's, by which a rung is judged
    time_s: float = 0.0  # a rung's timed runs
    compiles: int = 1  # of a step, in the first round

    def left_s(self, chains: Sequence[Sequence[Process]], places: int) -> float:
        """For these processes, those of a chain one after the other, so many chains side by side; timing is alone."""
        wholes = [sum(self._process_s(number, rungs) for number, rungs in chain) for chain in chains]
        timed = sum(len(rungs) for chain in chains for _, rungs in chain)
        return max([0.0, sum(wholes) / places, *wholes]) + self.time_s * timed

    def _process_s(self, number: int, rungs: Sequence[Rung]) -> float:
        """To prepare and judge; calm rungs are judged in the first round alone, and later ones find compiled code."""
        compiled = sum(rung.step.compiler.arguments is not None for rung in rungs)
        compiling = compiled * (COMPILING_S * self.compiles if number == 1 else CACHED_S)
        is_judged = number == 1 or not all(map(is_calm, rungs))
        return self.start_s + compiling + len(rungs) * self.judge_s * is_judged


def is_calm(rung: Rung) -> bool:
    """Whether a rung neither captures nor compiles, so that it can share a process."""
    step = rung.step
    return step.launch.steps == 0 and step.compiler.arguments is None and step.around is None and not step.threads


class Progress:
    """Tells a view what goes on."""

    def __init__(
        self, view: TorchObserver, file: str, *, times: bool, has_row: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._view, self._file, self._times, self._clock = view, file, times, clock
        self._has_row = has_row
        self._chains: Sequence[Sequence[Process]] = []
        self._places = 1
        self._started: list[Process] = []
        self._done: set[tuple[int, str]] = set()  # rounds and rungs
        self._pace = Pace()
        self._at = clock()  # the last thing by which the pace is known
        self._step_s: float | None = None  # eager's, by its first steps
        self._is_judging = False  # eager, which all rungs wait for
        self._judging_at: int | None = None  # the training that it began at, float64's counted as several
        self._ends_at: float | None = None  # of the run, or the first row's time

    def planned(self, chains: Sequence[Sequence[Process]], places: int) -> None:
        """What is left to do: chains of processes, so many of them side by side."""
        self._chains, self._places = chains, places
        if not self._pace.start_s:
            self._at = self._clock()
            if chains:
                self._view.doing(f"reading {self._file}")
        elif self._pace.time_s:
            self._expect()

    def started(self, number: int, rungs: Sequence[Rung]) -> None:
        """A process of this round has started."""
        self._started.append((number, rungs))
        if self._pace.start_s:
            self._preparing()

    def read(self, compiles: int = 1) -> None:
        """The first process has read the file, whose step is compiled so many times: without dropout once more."""
        self._pace.compiles = compiles
        if not self._pace.start_s:
            self._pace.start_s, self._at = self._clock() - self._at, self._clock()
            self._preparing()

    def tried(self, step_s: float) -> None:
        """Eager's first steps, before anything else is known."""
        self._step_s = step_s
        us = f"{float(f'{step_s * 1e6:.2g}'):,.0f}"
        self._view.note(f"eager takes about {us} us per step (a first guess); it is judged first")

    def judging(self, run: int, runs: int) -> None:
        """The reference takes shape: a training begins, of so many."""
        self._is_judging = True
        at = run - 1 + IN_FLOAT64 * (run > FLOAT64_RUN)
        if self._judging_at is None or at <= self._judging_at:  # a resumed run goes on where it was; a rung has another
            self._judging_at, self._at = at, self._clock()
        took: tuple[float, ...] = ()
        if at > self._judging_at:
            took = ((self._clock() - self._at) / (at - self._judging_at),)
        elif self._step_s is not None:
            took = tuple(times * self._step_s * (FIRST[-1] + LATE[-1]) for times in (1, BUSY))
        left_s = [each * (runs + IN_FLOAT64 + OWN - at) for each in took]
        part = f"run {run} of {runs}{', in float64' if run == FLOAT64_RUN else ''}"
        self._view.doing("judging eager", part, left_s, FIRST_ROW if self._times else "eager is judged")
        self._pace.judge_s = took[0] if took else 0.0

    def referenced(self) -> None:
        """The reference is there: what is left are the rungs."""
        self._is_judging = False
        if self._times and not self._has_row and self._pace.judge_s:
            self._ends_at = self._clock() + OWN * self._pace.judge_s
        self._preparing()

    def judged(self) -> None:
        """A rung is judged, and its timed runs begin."""
        if not self._pace.time_s:
            self._at = self._clock()

    def done(self, number: int, rung: str, *, is_timed: bool = True) -> None:
        """A rung is timed in this round, or it cannot be."""
        self._done.add((number, rung))
        self._is_judging = False
        if is_timed and not self._pace.time_s:
            self._has_row, self._pace.time_s = True, self._clock() - self._at
            self._expect()
        self._preparing()

    def writing(self) -> None:
        """The last rung is timed."""
        self._view.doing("writing the report")

    def _preparing(self) -> None:
        """Name the rungs that processes are at, those that compile first: they are waited for."""
        if self._is_judging:
            return
        planned = {(number, rung.name) for chain in self._chains for number, rungs in chain for rung in rungs}
        waiting = [self._due(process) for process in self._started]
        now = sorted((rungs[0] for rungs in waiting if rungs), key=lambda rung: rung.step.compiler.arguments is None)
        more = f" and {len(now) - SHOWN} more" if len(now) > SHOWN else ""
        names = f"{', '.join(rung.name for rung in now[:SHOWN])}{more}, " if now else ""
        part = f"{names}{len(self._done)} of {len(planned | self._done)} done"
        left_s = [] if self._ends_at is None else [self._ends_at - self._clock()]
        phase = "preparing and timing rungs" if self._times else "judging rungs"
        self._view.doing(phase, part, left_s, "" if self._has_row or not left_s or not self._times else FIRST_ROW)

    def _due(self, process: Process) -> list[Rung]:
        """The rungs of a process that are not done."""
        number, rungs = process
        return [rung for rung in rungs if (number, rung.name) not in self._done]

    def _expect(self) -> None:
        """Estimate the end; the first process has started."""
        left = [[(process[0], due) for process in chain if (due := self._due(process))] for chain in self._chains]
        left_s = self._pace.left_s([chain for chain in left if chain], self._places) - self._pace.start_s
        self._ends_at = self._clock() + left_s
