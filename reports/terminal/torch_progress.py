"""The live view of a ladder over a user's own PyTorch model: what goes on now, and a line for each finished rung."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

from rich.console import Console
from rich.status import Status
from rich.text import Text

from ladder.records.torch_run import RIGHT, TorchRung
from reports.facts import numbers
from reports.facts.torch_rows import grade, label, live_ratio
from reports.writers.console import STATUS_STYLE, is_live, say, standard

NAME, TIME, SPEEDUP = 24, 9, 9  # columns of the terminal
STYLES = {**STATUS_STYLE, "less exact": "yellow", "wrong": "bold red", "refused": "dim", "stopped": "yellow"}
QUIET_S = 60.0  # a file has no line of a part sooner than this after its last one
ABOUT = "~"  # before a speedup within noise, or of too few processes


@dataclass
class _Now:
    """The line of what goes on, with how long the phase has taken and what is left, by the clock at each redraw."""

    clock: Callable[[], float]
    phase: str = ""
    part: str = ""
    began: float = 0.0
    ends: Sequence[float] = ()
    until: str = ""

    def __rich__(self) -> Text:
        now = self.clock()
        what = f"{self.phase}: {self.part}" if self.part else self.phase
        left = _left([end - now for end in self.ends], self.until)
        return Text(f"{what} ({numbers.duration(round(now - self.began))}){left}", no_wrap=True, overflow="ellipsis")


def _left(seconds: Sequence[float], until: str) -> str:
    """What is left, roughly: `, about 20 s to 3 min left`; empty where it is not known, or is over."""
    if max(seconds, default=0.0) <= 0:
        return ""
    ends = dict.fromkeys(map(numbers.rough_duration, seconds))
    return f", about {' to '.join(ends)} {f'until {until}' if until else 'left'}"


class TorchView:
    """The view that the runner reports to; as a context manager it restores the terminal."""

    def __init__(self, console: Console | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._console, self._clock = standard(console), clock
        self._status: Status | None = None
        self._now = _Now(clock)
        self._phases: set[str] = set()  # that a file has lines of
        self._foretold: set[str] = set()  # phases whose time left a file has
        self._said_at = -math.inf  # by the clock, of the last such line
        self._is_explained, self._has_times = False, True
        self._shown: set[tuple[str, str, bool]] = set()  # rungs with what was printed of them

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def note(self, text: str) -> None:
        """Print what a reader should know in one line, so that a command in it can be copied; nothing is below it."""
        self.end()
        self._console.print(Text(text), soft_wrap=True)

    def doing(self, phase: str, part: str = "", left_s: Sequence[float] = (), until: str = "") -> None:
        """Show what goes on now: redrawn in place on a terminal.

        A file gets a line when a phase begins, when the time left is first known, and then one a minute.
        """
        if not is_live(self._console):
            left, is_new = _left(left_s, until), phase not in self._phases
            is_known = bool(left) and phase not in self._foretold
            if is_new or is_known or (part and self._clock() - self._said_at >= QUIET_S):
                say(self._console, f"{phase}{f': {part}' if part and not is_new else ''}{left}", "dim")
                self._said_at = self._clock()
            self._phases.add(phase)
            self._foretold |= {phase} if left else set()
            return
        if phase != self._now.phase:
            self._now.began = self._clock()
        self._now.phase, self._now.part, self._now.until = phase, part, until
        self._now.ends = [self._clock() + seconds for seconds in left_s]
        if self._status is None:
            self._status = self._console.status(self._now)
            self._status.start()

    def row(self, rung: TorchRung, eager: TorchRung | None, processes: int) -> None:
        """Print a rung's line: time, speedup over eager mode and check; its later processes print nothing.

        The first `~` is explained below it: a speedup within noise, or of fewer than so many processes.
        """
        line = rung.name, rung.status, rung.is_timed
        if line in self._shown:
            return
        if not self._shown:
            self._has_times = rung.is_timed or rung.status not in RIGHT  # else only a check is asked for
            times = f"{'us/step':>{TIME}}{'speedup':>{SPEEDUP}}  " * self._has_times
            header = f"{'rung':<{NAME}}{times}check"
            self._console.print(Text(header, "bold"), soft_wrap=True)
        self._shown.add(line)
        name = f"{label(rung):<{NAME}}"
        if rung.status not in RIGHT:
            say(self._console, f"{rung.status}: {rung.reason}", STYLES[rung.status], first=name)
            return
        speedup = numbers.MISSING
        if eager is not None and eager.is_timed and rung.is_timed and eager.name != rung.name:
            gain = live_ratio(eager, rung)
            is_about = gain.is_noise or len(rung.processes) < processes
            speedup = f"{ABOUT if is_about else ''}{numbers.ratio(gain.times)}"
        times = f"{numbers.microseconds(rung.step_us):>{TIME}}{speedup:>{SPEEDUP}}  " * self._has_times
        text = Text(f"{name}{times}")
        self._console.print(text.append(grade(rung), STYLES[rung.status]), soft_wrap=True)
        if speedup.startswith(ABOUT) and not self._is_explained:
            self._is_explained = True
            or_one = f", or comes from the first of {processes} processes" if processes > 1 else ""
            say(self._console, f"{ABOUT} marks a speedup that may be noise{or_one}.", "dim")

    def end(self) -> None:
        """Remove the line of what goes on."""
        if self._status is not None:
            self._status.stop()
            self._status = None
