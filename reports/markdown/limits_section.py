"""The measured limits of the GPU and the CPU, and the bounds that follow from them, on the terminal and in a report."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ladder.records.limits import CpuLimits, Limit, LimitsRecord, StepBounds
from ladder.records.run import Results
from reports.facts import numbers
from reports.facts.summary import table_order
from reports.markdown.tables import bullets, cell, code, figure_links, table

CAPTION = (
    "The median of several samples, with the smallest and the largest. A launch costs host time in Python; the other "
    "times are differences between two repetition counts on the device."
)
CAPTION_ON_CPU = (
    "The median of several samples, with the smallest and the largest. Each repeats its primitive in compiled code, of "
    "which only the first row counts Python's part."
)
HOW_FLOORS_ON_CPU_ARE_MADE = """\
*Floor of this design* uses the best sample of each primitive: Python's calls and the barriers of the threads, plus the
longest of three times that overlap. *Arithmetic*: the matrix products at the rate of multiply-adds or of BLAS,
whichever is higher, on the threads that the rung uses. *Images*: the batch once, from the level of the caches that
holds an epoch of images, or from memory. *Weights and images again*: each pass over them, through the level that holds
a thread's share. *Longest part*: where most of the floor lies. *Cheat limit*: no honest program is faster."""
HOW_BOUNDS_ARE_MADE = """\
Two bounds use the best sample of each primitive. *Floor of this design*: the longer of the host's time in launches and
the GPU's time in kernels, plus the host's waits. A kernel takes at least the time of the next node of a graph, of its
bytes from L2 or memory, and of its arithmetic, by the unit and on the multiprocessors (SMs) that the rung uses. A
float32 split in parts takes several products of the unit. A kernel that runs whole steps also takes its successive
exchanges: hops of a cluster or barriers of the grid. References have no such floor, because their fused operations are
not counted. *Cheat limit*: reading the batch's pixels once or the arithmetic at the GPU's highest rate, whichever is
longer, plus one exchange between multiprocessors, or all of it on one multiprocessor without any. A third is subtracted
as a margin. A stage that is faster than the cheat limit fails."""


def limits_heading(results: Results) -> str:
    """The line that the section unfolds from."""
    devices = [name for name, record in (("CPU", results.cpu_limits), ("GPU", results.limits)) if record is not None]
    return f"Limits of this {' and this '.join(devices) or 'GPU'}, and floors"


def limits_blocks(results: Results, figures: Collection[str]) -> Iterator[str]:
    """The report's section, with the roofline if it was drawn; nothing without measured limits."""
    if results.cpu_limits is not None:
        yield from _on_cpu(results, results.cpu_limits)
    record = results.limits
    if record is None:
        return
    yield "### Limits of this GPU"
    yield from _primitives(record)
    yield CAPTION
    yield " ".join(HOW_BOUNDS_ARE_MADE.split())
    found = _with_floor(results, "gpu")
    if found:
        yield table(
            ("Rung", "Multiplies by", "Launching", "Kernels", "Exchanging", "Waiting", "Floor, us/step", "Cheat limit"),
            [(code(name), *_parts(bounds)) for name, bounds in found],
            right=[False] * 2 + [True] * 6,
        )
    yield from figure_links({"roofline.svg"} & set(figures), "figures")


def _on_cpu(results: Results, record: CpuLimits) -> Iterator[str]:
    """The CPU's limits, and the floors of the rungs on it."""
    yield "### Limits of this CPU"
    yield from _primitives(record)
    yield CAPTION_ON_CPU
    yield " ".join(HOW_FLOORS_ON_CPU_ARE_MADE.split())
    found = _with_floor(results, "cpu")
    if found:
        yield table(
            ("Rung", "Multiplies by", "Calls", "Kernels", "Barriers", "Floor, us/step", "Cheat limit", "Longest part"),
            [(code(name), *_parts_on_cpu(bounds)) for name, bounds in found],
            right=[False] * 2 + [True] * 5 + [False],
        )
    without = [(one.name, one.bounds.no_floor) for one in table_order(results) if one.bounds and one.bounds.no_floor]
    if without:
        yield bullets(f"{code(name)} has no floor: {why}" for name, why in without)


def _primitives(record: LimitsRecord | CpuLimits) -> Iterator[str]:
    """The table of primitives, and those without a limit."""
    if record.limits:
        yield table(
            ("Primitive", "Median", "Min", "Max", ""),
            [(cell(one.title), *_numbers(one), one.unit) for one in record.limits],
            right=[False, True, True, True, False],
        )
    if record.skipped:
        yield bullets(_not_measured(record))


def _with_floor(results: Results, device: str) -> list[tuple[str, StepBounds]]:
    """The rungs on a device whose design has a floor, by name."""
    stages = [stage for stage in table_order(results) if stage.device == device]
    return [(stage.name, stage.bounds) for stage in stages if stage.bounds and stage.bounds.design]


def print_limits(record: LimitsRecord | CpuLimits, console: Console | None = None) -> None:
    """Print every primitive with its spread, then the primitives that were not measured, with the reason."""
    console = console or Console(highlight=False)
    console.print()
    console.print(_table(record.limits))
    console.print(Text(CAPTION if isinstance(record, LimitsRecord) else CAPTION_ON_CPU, "dim"))
    console.print(Text(f"Measured in {numbers.seconds(record.seconds)}.", "dim"))
    for line in _not_measured(record):
        console.print(Text(f"* {line}"))


def _not_measured(record: LimitsRecord | CpuLimits) -> Iterator[str]:
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


def _parts_on_cpu(bounds: StepBounds) -> list[str]:
    """How a rung on the CPU multiplies, the parts of its floor, the floor, the cheat limit, and its longest part."""
    design = bounds.design
    if design is None:
        return []
    times = (design.launching_us, design.kernels_us, design.waiting_us, bounds.design_floor_us, bounds.cheat_limit_us)
    return [cell(design.arithmetic), *map(numbers.microseconds, times), cell(design.bound_by)]
