"""The terminal: the table of a run with its notices, the list of stages, and the doctor's findings.

A row takes two lines, so that the table keeps every column at 80 columns; reasons, which may be long, stand below it.
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
from reports.facts.summary import FLOORS, Row, caption, heading, rows
from reports.facts.warnings import Notice, notices

NARROWEST = 80  # columns; a narrower terminal breaks the lines itself, which loses nothing, as cutting them would
ROOMY = 100  # columns; from here on there is a wider gap between two columns of the table
STATUS_STYLE = {"passed": "green", "failed": "bold red", "crashed": "bold red", "skipped": "dim"}


def print_results(results: Results, folder: Path | None = None, console: Console | None = None) -> None:
    """Print a run: its problem, the table, the notices, and the folder that holds its files."""
    console = wide_enough(console)
    console.print()
    console.print(Text(heading(results), "bold"), soft_wrap=True)
    for notice in notices(results):
        if notice.loud:  # said again below: the table may be longer than the screen
            _print_notice(console, notice)
    gap = 1 if console.width >= ROOMY else 0
    found = rows(results)
    shown = _shown(found)
    with_floors = gap > 0 and any(row.times_physical_floor for row in found)
    console.print(_table(shown, gap, with_floors))
    if len(shown) < len(found):
        left_out = numbers.count(len(found) - len(shown), "skipped stage")
        console.print(Text(f"Not in this table: {left_out}; the reasons are below.", "dim"))
    console.print(Text(f"{caption(results)} {FLOORS}" if with_floors else caption(results), "dim"))
    console.print()
    for notice in notices(results):
        _print_notice(console, notice)
    if folder is not None:
        console.print(Text(f"results.json and report.md, with its figures, are in {folder}"), soft_wrap=True)


def print_stage_list(stages: Sequence[tuple[str, str, str, str]], console: Console | None = None) -> None:
    """Print stages as (name, what it changes, what it needs, whether it runs here and why not), all in words."""
    _print_plain_table(("stage", "what it changes", "needs", "runs here"), stages, console)


def print_doctor(findings: Sequence[tuple[str, str, str]], console: Console | None = None) -> None:
    """Print findings as (what was looked for, what was found, the advice or nothing)."""
    _print_plain_table(("what", "found", "advice"), findings, console)


def _print_plain_table(header: Sequence[str], cells: Sequence[Sequence[str]], console: Console | None) -> None:
    console = wide_enough(console)
    table = plain_table()
    for index, name in enumerate(header):
        table.add_column(name, overflow="fold", no_wrap=index == 0)
    for line in cells:
        table.add_row(*(Text(cell) for cell in line))
    console.print(table)


def _shown(found: Sequence[Row]) -> Sequence[Row]:
    """The rows without the skipped ones where these are the most: they would bury what was measured."""
    others = [row for row in found if row.status != "skipped"]
    return others if 0 < len(others) < len(found) / 2 else found


def _table(lines: Sequence[Row], gap: int, with_floors: bool) -> Table:
    table = plain_table(gap)
    table.add_column("stage\n  what changed", overflow="fold")
    headers = ["ms/epoch\n(min-max)", "us/step\nlaunches", "vs\nbelow", "vs\nnaive", "vs\nPyTorch"]
    headers += ["x own floor\nx physical"] if with_floors else []
    for header in (*headers, "prepare\nmemory", "checked\naccuracy"):
        table.add_column(header, justify="right", no_wrap=True)
    for block, members in groupby(lines, key=lambda row: row.block):
        if block:
            table.add_section()
            table.add_row(Text(block[0].lower() + block[1:], "italic"))
        for row in members:
            table.add_row(*_cells(row, with_floors))
    return table


def _cells(row: Row, with_floors: bool) -> list[RenderableType]:
    remarks = (row.changed, row.shortened, "throttled" if row.throttled else "")
    indented = [Padding(Text(remark, "dim"), (0, 0, 0, 2), expand=False) for remark in remarks if remark]
    times = Text(numbers.milliseconds(row.epoch_s.median if row.epoch_s else None))
    if row.epoch_s is not None:
        times.append(f"\n({numbers.spread_ends(row.epoch_s)})", "dim")
    checked = Text(row.status, STATUS_STYLE[row.status])
    if row.test_accuracy is not None:
        checked.append(f"\n{numbers.percent(row.test_accuracy)}", "default not bold")
    floors = _two_lines(numbers.ratio(row.times_own_floor), numbers.ratio(row.times_physical_floor))
    return [
        Group(Text(row.label), *indented),
        times,
        _two_lines(numbers.microseconds(row.step_us), numbers.per_step(row.launches_per_step)),
        Text(numbers.ratio(row.versus_below)),
        Text(numbers.ratio(row.versus_naive)),
        _two_lines(numbers.ratio(row.versus_torch), numbers.precision(row.precision)),
        *([floors] if with_floors else []),
        _two_lines(numbers.seconds(row.prepare_s), numbers.memory(row.gpu_memory_mib)),
        checked,
    ]


def _two_lines(upper: str, lower: str) -> Text:
    return Text.assemble(upper, (f"\n{lower}", "dim"))


def wide_enough(console: Console | None) -> Console:
    """The console, or that of standard output, with room for a table."""
    console = console or Console(highlight=False)
    console.width = max(console.width, NARROWEST)
    return console


def plain_table(gap: int = 1) -> Table:
    """A table without a frame, to which columns and rows are added."""
    return Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, gap, 0, 0))


def _print_notice(console: Console, notice: Notice) -> None:
    if notice.loud:
        console.print(Text(f"!!! {notice.text} !!!", "bold white on red"))
    else:
        console.print(Text(f"* {notice.text}"))
