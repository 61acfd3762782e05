"""The GPU's measured limits, and the bounds that follow from them, on the terminal and in a report."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ladder.records.limits import Limit, LimitsRecord, StepBounds
from ladder.records.run import Results
from reports.facts import numbers
from reports.facts.summary import table_order
from reports.markdown.tables import bullets, cell, code, figure_links, table

CAPTION = (
    "The median of several samples, with the smallest and the largest. A launch costs host time in Python; the other "
    "times are differences between two repetition counts on the device."
)
HOW_BOUNDS_ARE_MADE = """\
Two bounds use the best sample of each primitive. *Floor of this design*: the longer of the host's time in launches and
the GPU's time in kernels, plus the host's waits. A kernel takes at least the time of the next node of a graph, of its
bytes from L2 or memory, and of its arithmetic, by the unit and on the multiprocessors (SMs) that the rung uses. A
float32 split in parts takes several products of the unit. A kernel that runs whole steps also takes its successive
exchanges: hops of a cluster or barriers of the grid. References have no such floor, because their fused operations are
not counted. *Cheat limit*: reading the batch's pixels once or the arithmetic at the GPU's highest rate, whichever is
longer, plus one exchange between multiprocessors, or all of it on one multiprocessor without any. A third is subtracted
as a margin. A stage that is faster than the cheat limit fails."""


def limits_blocks(results: Results, figures: Collection[str]) -> Iterator[str]:
    """The report's section, with the roofline if it was drawn; nothing without measured limits."""
    record = results.limits
    if record is None:
        return
    yield "## Limits of this GPU"
    if record.limits:
        yield table(
            ("Primitive", "Median", "Min", "Max", ""),
            [(cell(one.title), *_numbers(one), one.unit) for one in record.limits],
            right=[False, True, True, True, False],
        )
    if record.skipped:
        yield bullets(_not_measured(record))
    yield CAPTION
    yield " ".join(HOW_BOUNDS_ARE_MADE.split())
    found = [(stage.name, stage.bounds) for stage in table_order(results) if stage.bounds and stage.bounds.design]
    if found:
        yield table(
            ("Rung", "Multiplies by", "Launching", "Kernels", "Exchanging", "Waiting", "Floor, us/step", "Cheat limit"),
            [(code(name), *_parts(bounds)) for name, bounds in found],
            right=[False] * 2 + [True] * 6,
        )
    yield from figure_links({"roofline.svg"} & set(figures), "figures")


def print_limits(record: LimitsRecord, console: Console | None = None) -> None:
    """Print every primitive with its spread, then the primitives that were not measured, with the reason."""
    console = console or Console(highlight=False)
    console.print()
    console.print(_table(record.limits))
    console.print(Text(CAPTION, "dim"))
    console.print(Text(f"Measured in {numbers.seconds(record.seconds)}.", "dim"))
    for line in _not_measured(record):
        console.print(Text(f"* {line}"))


def _not_measured(record: LimitsRecord) -> Iterator[str]:
    """A line for each reason, with its primitives."""
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


def _parts(bounds: StepBounds) -> list[str]:
    """How a rung multiplies, the parts of its floor, the floor itself, and the cheat limit."""
    design = bounds.design
    if design is None:
        return []
    parts = (design.launching_us, design.kernels_us, design.exchanging_us, design.waiting_us)
    whole = (bounds.design_floor_us, bounds.cheat_limit_us)
    return [cell(design.arithmetic), *map(numbers.microseconds, (*parts, *whole))]
