"""The terminal's table of a study."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from reports.facts import numbers
from reports.facts.run_table import name_of, passed_in_words
from reports.facts.study_points import (
    StudyResults,
    accuracy_text,
    is_disturbed,
    not_passed,
    point_text,
    point_winners,
    spread_text,
)
from reports.facts.times import step_us
from reports.screens.conclusion import report_in
from reports.terminal.console_layout import STATUS_STYLE, Column, print_link, print_table, say, standard


def print_study(results: StudyResults, folder: Path, console: Console | None = None) -> None:
    """Print a step's time at every point, the fastest rungs, and the reasons for missing times."""
    console = standard(console)
    console.print()
    say(console, results.study.title, "bold")
    console.print()
    print_table(console, *_times(results))
    for winner in point_winners(results):
        where = f"{point_text(winner.point)}, {winner.lead.precision}"
        rung, reference = winner.lead.stage.name, winner.lead.reference.name
        say(console, f"{where}: {rung}, {winner.text} of the fastest reference, {reference}", first="- ")
    for line in not_passed(results):
        say(console, line, first="- ")
    console.print()
    print_link(console, report_in(folder), "Report  ")


def _times(results: StudyResults) -> tuple[list[Column], dict[int, str]]:
    """A row for every point and stage, and the heading of each point by the number of its first row."""
    lines: list[tuple[str, ...]] = []
    headings = {}
    for point in results.measured:
        headings[len(lines)] = point_text(point)
        for stage in results.stages():
            here = results.at(point, stage.name)
            if here is not None and here.status != "skipped":
                spread = step_us(here)
                time = numbers.microseconds(spread.median if spread else None)
                remark = "disturbed" if is_disturbed(here) else ""
                verdict = passed_in_words(here) if here.status == "passed" else here.status
                learned = accuracy_text(results, here)
                lines.append((name_of(here), time, spread_text(spread), learned, remark, verdict))
    stages, times, spreads, accuracies, remarks, checked = zip(*lines, strict=True) if lines else ((),) * 6
    return [
        Column("stage", stages),
        Column("us/step", times, 0, right=True, wider=Column("us/step (min-max)", spreads, 3, right=True)),
        *([Column("accuracy", accuracies, 2, right=True)] if any(accuracies) else []),
        Column("", remarks, 1, style="yellow"),
        Column("checked", checked, 2, styles=STATUS_STYLE),
    ], headings
