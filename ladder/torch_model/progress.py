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
from stages.torch.training_step import Rung

SHOWN = 2  # names of rungs that prepare
COMPILING_S, CACHED_S = 20.0, 6.0  # with Inductor: 10 to 40 s cold, and 4 to 8 s with its code on disk


class TorchObserver(Protocol):
    """Whoever shows a run as it goes on."""

    def note(self, text: str) -> None:
        """Something that the user should know."""

    def doing(self, phase: str, part: str = "", left_s: float | None = None, until: str = "") -> None:
        """A phase, the part of it that has begun, and the seconds until the end, or until something else."""

    def row(self, rung: TorchRung, eager: TorchRung | None, processes: int) -> None:
        """A rung is timed, in one of so many processes, or has got its verdict without a time."""


@dataclass
class Pace:
    """Seconds that parts of this run take."""

    start_s: float = 0.0  # from the start of a process until it has read the user's file
    judge_s: float = 0.0  # a training of eager's, by which a rung is judged
    time_s: float = 0.0  # a rung's timed runs
    compiles: int = 1  # of a step, in the first round

    def round_s(self, families: Sequence[Sequence[Rung]], places: int, *, is_first: bool) -> float:
        """To prepare, judge and time these rungs, so many families side by side; the first round's have begun."""
        wholes = [self._family_s(family, is_first=is_first) for family in families if family]
        if is_first and wholes:
            wholes[0] = max(0.0, wholes[0] - self.start_s - self.judge_s - self.time_s)
        side_by_side = max([sum(wholes) / places, *wholes])
        timed_alone = families[1:] if is_first else families
        return side_by_side + self.time_s * sum(map(len, timed_alone))

    def _family_s(self, rungs: Sequence[Rung], *, is_first: bool) -> float:
        """To prepare and judge; calm ones of the first round are timed at once, and in others they are not judged."""
        compiled = sum(rung.step.compiler.arguments is not None for rung in rungs)
        compiling = compiled * (COMPILING_S * self.compiles if is_first else CACHED_S)
        if is_first or not all(map(is_calm, rungs)):
            compiling += len(rungs) * self.judge_s
        return self.start_s + compiling + len(rungs) * self.time_s * (is_first and all(map(is_calm, rungs)))


def is_calm(rung: Rung) -> bool:
    """Whether a rung neither captures nor compiles, so that it can share a process."""
    step = rung.step
    return step.launch.steps == 0 and step.compiler.arguments is None and step.around is None and not step.threads


class Progress:
    """Tells a view what goes on."""

    def __init__(
        self, view: TorchObserver, file: str, rounds: int, *, times: bool, has_row: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._view, self._file, self._rounds, self._times, self._clock = view, file, rounds, times, clock
        self._families: Sequence[Sequence[Rung]] = []
        self._begun: list[Sequence[Rung]] = []  # families whose processes have started
        self._number, self._places = 1, 1
        self._pace = Pace()
        self._at = clock()  # the last thing by which the pace is known
        self._ends_at: float | None = None
        self._is_ready = False  # all rungs of the round are prepared
        self._ready: list[str] = []
        self._timed: list[str] = []
        self._has_row = has_row

    def round(self, number: int, families: Sequence[Sequence[Rung]], places: int) -> None:
        """A round begins, in which so many families prepare at once."""
        self._number, self._families, self._places = number, families, places
        self._is_ready, self._begun, self._ready, self._timed = False, [], [], []
        self._at = self._clock()
        if self._pace.start_s:
            self._expect(self._left_s(self._pace.round_s(families, places, is_first=number == 1)))
        else:
            self._view.doing(f"reading {self._file}")

    def started(self, family: Sequence[Rung]) -> None:
        """The process of a family has started."""
        self._begun.append(family)
        if self._pace.start_s and (self._has_row or not self._times):
            self._preparing()

    def read(self, compiles: int = 1) -> None:
        """The first process has read the file, whose step is compiled so many times: without dropout once more."""
        self._pace.compiles = compiles
        if not self._pace.start_s:
            self._pace.start_s, self._at = self._clock() - self._at, self._clock()

    def judging(self, run: int, runs: int) -> None:
        """The reference takes shape: a training begins, of so many."""
        took = (self._clock() - self._at) / (run - 1) if run > 1 else None
        left_s = None if took is None else took * (runs - run + 2)
        part = f"run {run} of {runs}{', in float64' if run == runs else ''}"
        self._view.doing("judging eager", part, left_s, FIRST_ROW if self._times else "")
        self._pace.judge_s = took or 0.0

    def referenced(self) -> None:
        """The reference is there: what is left are the rungs."""
        if self._has_row or not self._times:
            self._preparing()

    def judged(self, rung: str) -> None:
        """A rung is prepared and judged, or it cannot be."""
        self._ready.append(rung)
        if not self._has_row:
            self._at = self._clock()
        if self._has_row or not self._times:
            self._preparing()

    def timing(self, rung: str) -> None:
        """A rung's timed runs begin, while nothing else goes on."""
        if not self._is_ready:
            self._is_ready = True
            last = [one for family in self._families for one in family if one.name not in self._timed]
            self._expect(self._left_s(self._pace.time_s * len(last)))
        rungs = [one for family in self._families for one in family]
        left_out = [one.name for one in rungs if one.group == "left out"]
        if rung in left_out:
            part = f"rung {left_out.index(rung) + 1} of {len(left_out)}"
            self._doing("leaving one change out", part)
        else:
            count = len(rungs) - len(left_out)
            self._doing(f"timing {count} {_rungs(count)}", f"{rung}, {min(len(self._timed) + 1, count)} of {count}")

    def timed(self, rung: str) -> None:
        """A rung is timed."""
        self._timed.append(rung)
        if not self._has_row:
            self._has_row, self._pace.time_s = True, self._clock() - self._at
            self._expect(self._left_s(self._pace.round_s(self._families, self._places, is_first=True)))
        if not self._is_ready:
            self._preparing()

    def writing(self) -> None:
        """The last rung is timed."""
        self._view.doing("writing the report")

    def _preparing(self) -> None:
        """Name the rungs that processes are at, those that compile first: they are waited for."""
        count = sum(map(len, self._families))
        waiting = [[rung for rung in family if rung.name not in self._ready] for family in self._begun]
        now = sorted((rungs[0] for rungs in waiting if rungs), key=lambda rung: rung.step.compiler.arguments is None)
        more = f" and {len(now) - SHOWN} more" if len(now) > SHOWN else ""
        names = f"{', '.join(rung.name for rung in now[:SHOWN])}{more}, " if now else ""
        part = f"{names}{len(self._ready)} of {count} done"
        self._doing(f"{'preparing' if self._times else 'judging'} {count} {_rungs(count)}", part)

    def _doing(self, phase: str, part: str) -> None:
        which = f"round {self._number} of {self._rounds}: " if self._rounds > 1 and self._times else ""
        left_s = None if self._ends_at is None else self._ends_at - self._clock()
        self._view.doing(f"{which}{phase}", part, left_s)

    def _left_s(self, round_s: float) -> float:
        """The seconds of this round with those of the rounds after it."""
        after = self._rounds - self._number
        return round_s + after * self._pace.round_s(self._families, self._places, is_first=False)

    def _expect(self, left_s: float) -> None:
        self._ends_at = self._clock() + left_s if self._times else None


def _rungs(count: int) -> str:
    return "rung" if count == 1 else "rungs"
