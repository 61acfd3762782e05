"""The terminal: the table of a run with its notices, the list of stages, and the doctor's findings.

Each row takes two lines, so that the table fits 80 columns. Reasons may be long and stand below it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from rich import box
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ladder.records.run import Results
from reports.facts import numbers
from reports.facts.ratios import Ratio
from reports.facts.summary import BOUNDS, Row, caption, heading, rows
from reports.facts.warnings import Notice, notices

NARROWEST = 80  # columns; a narrower terminal wraps the lines itself, which loses nothing
ROOMY = 100  # columns; from here on the table has wider gaps, and `x of naive`
ROOMIER = 115  # columns; from here on it has the bounds as well
STATUS_STYLE = {"passed": "green", "failed": "bold red", "crashed": "bold red", "skipped": "dim"}


def print_results(results: Results, folder: Path | None = None, console: Console | None = None) -> None:
    """Print a run: its problem, the table, the notices, and the folder with its files."""
    console = wide_enough(console)
    console.print()
    console.print(Text(heading(results), "bold"), soft_wrap=True)
    for notice in notices(results):
        if notice.loud:  # repeated below: the table may be longer than the screen
            _print_notice(console, notice)
    roomy = console.width >= ROOMY
    found = rows(results)
    shown = _shown(found)
    with_bounds = console.width >= ROOMIER and any(row.times_cheat_limit for row in found)
    console.print(_table(shown, roomy, with_bounds))
    if len(shown) < len(found):
        left_out = numbers.count(len(found) - len(shown), "skipped stage")
        console.print(Text(f"Not in this table: {left_out}; the reasons are below.", "dim"))
    how_to_read = caption(results, with_naive=roomy)
    console.print(Text(f"{how_to_read} {BOUNDS}" if with_bounds else how_to_read, "dim"))
    console.print()
    for notice in notices(results):
        _print_notice(console, notice)
    if folder is not None:
        console.print(Text(f"results.json, report.md and its figures are in {folder}"), soft_wrap=True)


def print_stage_list(stages: Sequence[tuple[str, str, str, str]], console: Console | None = None) -> None:
    """Print stages as (name, change, needs, whether it runs here or why not), all in words."""
    _print_plain_table(("stage", "what it changes", "needs", "runs here"), stages, console)


def print_doctor(findings: Sequence[tuple[str, str, str]], console: Console | None = None) -> None:
    """Print findings as (item, what was found, advice or empty)."""
    _print_plain_table(("item", "found", "advice"), findings, console)


def _print_plain_table(header: Sequence[str], cells: Sequence[Sequence[str]], console: Console | None) -> None:
    console = wide_enough(console)
    table = plain_table()
    for index, name in enumerate(header):
        table.add_column(name, overflow="fold", no_wrap=index == 0)
    for line in cells:
        table.add_row(*(Text(cell) for cell in line))
    console.print(table)


def _shown(found: Sequence[Row]) -> Sequence[Row]:
    """The rows; without skipped ones if these are more than half and would bury the others."""
    others = [row for row in found if row.status != "skipped"]
    return others if 0 < len(others) < len(found) / 2 else found


def _table(lines: Sequence[Row], roomy: bool, with_bounds: bool) -> Table:
    table = plain_table(gap=1 if roomy else 0)
    table.add_column("stage\n  from", overflow="fold")
    headers = ["ms/epoch\n(min-max)", "us/step\nlaunches", "x of\nfrom"]
    headers += ["x of\nnaive"] if roomy else []
    headers += ["x fastest\nreference"]
    headers += ["x floor\nx cheat limit"] if with_bounds else []
    for header in (*headers, "prepare\nmemory", "checked\naccuracy"):
        table.add_column(header, justify="right", no_wrap=True)
    for block, members in groupby(lines, key=lambda row: row.block):
        if block:
            table.add_section()
            table.add_row(Text(block[0].lower() + block[1:], "italic"))
        for row in members:
            table.add_row(*_cells(row, roomy, with_bounds))
    return table


def _cells(row: Row, roomy: bool, with_bounds: bool) -> list[RenderableType]:
    parent = f"from {row.parent}" if row.parent else ""
    remarks = (parent, row.device, row.shortened, "throttled" if row.throttled else "")
    indented = [Padding(Text(remark, "dim"), (0, 0, 0, 2), expand=False) for remark in remarks if remark]
    times = Text(numbers.milliseconds(row.epoch_s.median if row.epoch_s else None))
    if row.epoch_s is not None:
        times.append(f"\n({numbers.spread_ends(row.epoch_s)})", "dim")
    checked = Text(row.status, STATUS_STYLE[row.status])
    if row.test_accuracy is not None:
        checked.append(f"\n{numbers.percent(row.test_accuracy)}", "default not bold")
    bounds = _two_lines(numbers.ratio(row.times_floor), numbers.ratio(row.times_cheat_limit))
    return [
        Group(Text(row.name), *indented),
        times,
        _two_lines(numbers.microseconds(row.step_us), numbers.per_step(row.launches_per_step)),
        _two_lines(*_ratio_lines(row.versus_parent)),
        *([Text(numbers.ratio(row.versus_naive))] if roomy else []),
        _two_lines(numbers.ratio(row.lead.ratio.times if row.lead else None), numbers.precision(row.precision)),
        *([bounds] if with_bounds else []),
        _two_lines(numbers.seconds(row.prepare_s), numbers.memory(row.gpu_memory_mib)),
        checked,
    ]


def _ratio_lines(ratio: Ratio | None) -> tuple[str, str]:
    """A ratio, and below it whether it is within the noise."""
    if ratio is None:
        return numbers.MISSING, ""
    return numbers.ratio(ratio.times), "noise" if ratio.is_noise else ""


def _two_lines(upper: str, lower: str) -> Text:
    return Text.assemble(upper, (f"\n{lower}", "dim"))


def wide_enough(console: Console | None) -> Console:
    """The console, or one for standard output, at least 80 columns wide."""
    console = console or Console(highlight=False)
    console.width = max(console.width, NARROWEST)
    return console


def plain_table(gap: int = 1) -> Table:
    """An empty table without a frame."""
    return Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, gap, 0, 0))


def _print_notice(console: Console, notice: Notice) -> None:
    if notice.loud:
        console.print(Text(f"!!! {notice.text} !!!", "bold white on red"))
    else:
        console.print(Text(f"* {notice.text}"))
