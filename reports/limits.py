"""The terminal's table of what the GPU can do at best."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ladder.limit_data import Limit, LimitsRecord
from reports import format

CAPTION = (
    "Median of some samples, with the smallest and the largest; what a launch costs is the host's time in Python, the "
    "other times are differences of two counts of the same on the device."
)


def print_limits(record: LimitsRecord, console: Console | None = None) -> None:
    """Print every primitive with its spread, then those that were left out with the reason."""
    console = console or Console(highlight=False)
    console.print()
    console.print(_table(record.limits))
    console.print(Text(CAPTION, "dim"))
    console.print(Text(f"Measured in {format.seconds(record.seconds)}.", "dim"))
    for title, reason in record.skipped.items():
        console.print(Text(f"* not measured: {title}: {reason}"))


def _table(limits: list[Limit]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("primitive", overflow="fold")
    for header in ("median", "min", "max"):
        table.add_column(header, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    table.add_column("spread", justify="right", no_wrap=True)
    for limit in limits:
        numbers = (format.microseconds(value) for value in (limit.median, limit.min, limit.max))
        table.add_row(Text(limit.title), *numbers, limit.unit, format.percent(limit.spread))
    return table
