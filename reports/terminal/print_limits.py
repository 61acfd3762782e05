"""The measured limits of the GPU or the CPU on the terminal."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ladder.records.limits_record import CpuLimits, LimitsRecord
from reports.facts import numbers
from reports.terminal.console_layout import plain_table, say, standard
from reports.views.details import CAPTION, CAPTION_ON_CPU, limits_grid, not_measured


def print_limits(record: LimitsRecord | CpuLimits, console: Console | None = None) -> None:
    """Print every primitive with its spread, then the primitives that were not measured, with the reason."""
    console = standard(console)
    console.print()
    console.print(_table(record))
    console.print(Text(CAPTION if isinstance(record, LimitsRecord) else CAPTION_ON_CPU, "dim"))
    console.print(Text(f"Measured in {numbers.seconds(record.seconds)}.", "dim"))
    for line in not_measured(record):
        say(console, line, first="- ")


def _table(record: LimitsRecord | CpuLimits) -> Table:
    grid = limits_grid(record)
    shown = plain_table()
    for header, right in zip(grid.header, grid.right, strict=True):
        words = "" if header == "Unit" else header.lower()
        shown.add_column(words, justify="right" if right else "left", overflow="fold", no_wrap=header != "Primitive")
    for line in grid.lines:
        shown.add_row(*map(Text, line))
    return shown
