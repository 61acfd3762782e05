"""The live view of a ladder over a user's own PyTorch model: what goes on now, and a line for each finished rung."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.status import Status
from rich.text import Text

from ladder.records.torch_run import RIGHT, TorchRung
from reports.facts import numbers
from reports.facts.torch_rows import label, live_ratio
from reports.writers.console import STATUS_STYLE, is_live, say, standard

NAME, TIME, SPEEDUP = 24, 9, 9  # columns of the terminal
STYLES = {**STATUS_STYLE, "less exact": "yellow", "wrong": "bold red", "refused": "dim", "stopped": "yellow"}
AS_EXACT = "as exact"
ABOUT = "~"  # before a speedup within noise


class TorchView:
    """The view that the runner reports to; as a context manager it restores the terminal."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = standard(console)
        self._status: Status | None = None
        self._doing = ""
        self._shown: set[tuple[str, str, bool]] = set()  # rungs with what was printed of them

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.end()

    def note(self, text: str) -> None:
        """Print what a reader should know in one line, so that a command in it can be copied."""
        self._console.print(Text(text), soft_wrap=True)

    def doing(self, text: str) -> None:
        """Show what goes on now: redrawn in place on a terminal, else a line each time that it changes."""
        if text == self._doing:
            return
        self._doing = text
        if not is_live(self._console):
            say(self._console, text, "dim")
        elif self._status is None:
            self._status = self._console.status(Text(text, no_wrap=True, overflow="ellipsis"))
            self._status.start()
        else:
            self._status.update(Text(text, no_wrap=True, overflow="ellipsis"))

    def row(self, rung: TorchRung, eager: TorchRung | None) -> None:
        """Print a rung's line: time, speedup over eager mode and check; its later processes print nothing."""
        line = rung.name, rung.status, rung.is_timed
        if line in self._shown:
            return
        if not self._shown:
            header = f"{'rung':<{NAME}}{'us/step':>{TIME}}{'speedup':>{SPEEDUP}}  check"
            self._console.print(Text(header, "bold"), soft_wrap=True)
        self._shown.add(line)
        name = f"{label(rung):<{NAME}}"
        if rung.status not in RIGHT:
            say(self._console, f"{rung.status}: {rung.reason}", STYLES[rung.status], first=name)
            return
        speedup = numbers.MISSING
        if eager is not None and eager.is_timed and rung.is_timed and eager.name != rung.name:
            gain = live_ratio(eager, rung)
            speedup = f"{ABOUT if gain.is_noise else ''}{numbers.ratio(gain.times)}"
        text = Text(f"{name}{numbers.microseconds(rung.step_us):>{TIME}}{speedup:>{SPEEDUP}}  ")
        checked = AS_EXACT if rung.status == "passed" else rung.status
        self._console.print(text.append(checked, STYLES[rung.status]), soft_wrap=True)

    def end(self) -> None:
        """Remove the line of what goes on."""
        if self._status is not None:
            self._status.stop()
            self._status = None
        self._doing = ""
