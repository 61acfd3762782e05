"""The live view of a ladder over a user's own PyTorch model: what goes on now, and a line for each finished rung."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.status import Status
from rich.text import Text

from ladder.records.torch_run import RIGHT, TorchRung
from reports.facts import numbers
from reports.terminal.console_layout import STATUS_STYLE, is_live, say, standard

NAME, TIME, SPEEDUP = 24, 9, 9  # columns of the terminal
STYLES = {**STATUS_STYLE, "less exact": "yellow", "wrong": "bold red", "refused": "dim", "stopped": "yellow"}
AS_EXACT = "as exact"


class TorchView:
    """The view that the runner reports to; as a context manager it restores the terminal."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = standard(console)
        self._status: Status | None = None
        self._doing = ""
        self._shown: set[str] = set()  # rungs whose line is printed

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.end()

    def note(self, text: str) -> None:
        """Print what a reader should know, on lines of its own."""
        say(self._console, text)

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
        """Print a rung's line once: its time, its speedup over eager mode, its check; later processes print nothing."""
        has_result = rung.is_timed or rung.status not in RIGHT
        if rung.name in self._shown or not has_result:
            return
        if not self._shown:
            header = f"{'rung':<{NAME}}{'us/step':>{TIME}}{'of eager':>{SPEEDUP}}  check"
            self._console.print(Text(header, "bold"), soft_wrap=True)
        self._shown.add(rung.name)
        if rung.step_us is None:
            say(self._console, f"{rung.status}: {rung.reason}", STYLES[rung.status], first=f"{rung.name:<{NAME}}")
            return
        gain = eager.step_us / rung.step_us if eager is not None and eager.step_us is not None else None
        times = numbers.ratio(gain) if rung.name != (eager.name if eager is not None else "") else numbers.MISSING
        checked = AS_EXACT if rung.status == "passed" else rung.status
        line = Text(f"{rung.name:<{NAME}}{numbers.microseconds(rung.step_us):>{TIME}}{times:>{SPEEDUP}}  ")
        self._console.print(line.append(checked, STYLES[rung.status]), soft_wrap=True)

    def end(self) -> None:
        """Remove the line of what goes on."""
        if self._status is not None:
            self._status.stop()
            self._status = None
        self._doing = ""
