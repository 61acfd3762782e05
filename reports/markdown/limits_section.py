"""What the GPU can do at best, and the floors that follow: on the terminal, and in a report."""

from __future__ import annotations

from collections.abc import Iterator

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ladder.records.limits import Floor, Limit, LimitsRecord
from ladder.records.run import Results
from reports.facts import numbers
from reports.facts.summary import label, table_order
from reports.markdown.tables import bullets, cell, table

CAPTION = (
    "Median of some samples, with the smallest and the largest; what a launch costs is the host's time in Python, the "
    "other times are differences of two counts of the same on the device."
)
HOW_FLOORS_ARE_MADE = """\
Floors are made of the best sample of each primitive. *A stage's own*: the longer of what its launches cost the host and
what its kernels take the GPU, and on top of it the host's waits. A kernel takes at least what the next node of a graph
takes, what its bytes take from L2 or from memory, and what its arithmetic takes; one that runs whole steps also what
its exchanges take, hops of a cluster or barriers of the grid, that follow each other in a step. *Physical*: the batch's
pixels read once, or the arithmetic at the GPU's highest rate, whichever is longer, and one exchange between
multiprocessors, or one multiprocessor without any; all of it less a third, lest a luckier machine be called a liar. A
stage that is faster than that has failed. References have no floor of their own, since they fuse operations that nobody
has counted."""


def limits_blocks(results: Results) -> Iterator[str]:
    """The report's section; nothing where no limits were measured."""
    record = results.limits
    if record is None:
        return
    yield "## What this GPU can do at best"
    if record.limits:
        yield table(
            ("Primitive", "Median", "Min", "Max", ""),
            [(cell(one.title), *_numbers(one), one.unit) for one in record.limits],
            right=[False, True, True, True, False],
        )
    if record.skipped:
        yield bullets(_not_measured(record))
    yield CAPTION
    yield " ".join(HOW_FLOORS_ARE_MADE.split())
    floors = [(label(stage), stage.floor) for stage in table_order(results) if stage.floor and stage.floor.design]
    if floors:
        yield table(
            ("Rung", "Launching", "Kernels", "Exchanging", "Waiting", "Own floor, us/step", "Physical floor, us/step"),
            [
                (cell(name), *map(numbers.microseconds, _parts(floor)), numbers.microseconds(floor.physical_us))
                for name, floor in floors
            ],
            right=[False] + [True] * 6,
        )


def print_limits(record: LimitsRecord, console: Console | None = None) -> None:
    """Print every primitive with its spread, then those that were left out with the reason."""
    console = console or Console(highlight=False)
    console.print()
    console.print(_table(record.limits))
    console.print(Text(CAPTION, "dim"))
    console.print(Text(f"Measured in {numbers.seconds(record.seconds)}.", "dim"))
    for line in _not_measured(record):
        console.print(Text(f"* {line}"))


def _not_measured(record: LimitsRecord) -> Iterator[str]:
    """A line for each reason."""
    for reason in dict.fromkeys(record.skipped.values()):
        titles = [title for title, why in record.skipped.items() if why == reason]
        yield f"not measured: {'; '.join(titles)}: {reason}"


def _table(limits: list[Limit]) -> Table:
    shown = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    shown.add_column("primitive", overflow="fold")
    for header in ("median", "min", "max"):
        shown.add_column(header, justify="right", no_wrap=True)
    shown.add_column("", no_wrap=True)
    shown.add_column("spread", justify="right", no_wrap=True)
    for limit in limits:
        shown.add_row(Text(limit.title), *_numbers(limit), limit.unit, numbers.percent(limit.spread))
    return shown


def _numbers(limit: Limit) -> list[str]:
    return [numbers.microseconds(value) for value in (limit.median, limit.min, limit.max)]


def _parts(floor: Floor) -> list[float | None]:
    """What a stage's own floor is made of, and the floor."""
    design = floor.design
    if design is None:
        return []
    return [design.launching_us, design.kernels_us, design.exchanging_us, design.waiting_us, floor.design_us]
