"""The terminal's table of a study."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from reports.facts.study import (
    StudyResults,
    is_disturbed,
    not_passed,
    point_text,
    point_winners,
    spread_text,
    step_us,
)
from reports.facts.summary import name_of
from reports.terminal.tables import STATUS_STYLE, plain_table, wide_enough


def print_study(results: StudyResults, folder: Path, console: Console | None = None) -> None:
    """Print a step's time at every point, the fastest rungs, and the reasons for missing times."""
    console = wide_enough(console)
    console.print()
    console.print(Text(results.study.title, "bold"), soft_wrap=True)
    console.print(_times(results))
    for one in point_winners(results):
        console.print(
            Text(
                f"* {point_text(one.point)}, {one.lead.precision}: {one.lead.stage.name}, {one.text} of the fastest "
                f"reference, {one.lead.reference.name}"
            ),
            soft_wrap=True,
        )
    for line in not_passed(results):
        console.print(Text(f"* {line}"), soft_wrap=True)
    console.print(Text(f"study.json and report.md, with its figures, are in {folder}"), soft_wrap=True)


def _times(results: StudyResults) -> Table:
    """A row for every point and stage, since a terminal has no room for a column for each point."""
    table = plain_table()
    table.add_column("point")
    table.add_column("stage", overflow="fold")
    table.add_column("us/step (min-max)", justify="right", no_wrap=True)
    table.add_column("checked")
    for point in results.measured:
        name = point_text(point)
        for stage in results.stages():
            here = results.at(point, stage.name)
            if here is not None and here.status != "skipped":
                status = Text(here.status, STATUS_STYLE.get(here.status, ""))
                remark = ", disturbed" if is_disturbed(here) else ""
                table.add_row(Text(name), Text(name_of(here)), spread_text(step_us(here)) + remark, status)
                name = ""
    return table
