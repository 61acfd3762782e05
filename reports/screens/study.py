"""The screen of a study: a step's time at every point, the fastest rungs, and the reasons for missing times."""

from __future__ import annotations

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
from reports.screens.blocks import Column, Group, Screen, Sentences, Table
from reports.screens.run import run_screen
from reports.screens.stages import STATUS


def study_screen(results: StudyResults) -> Screen:
    """A study; its report follows it."""
    leads = []
    for winner in point_winners(results):
        where = f"{point_text(winner.point)}, {winner.lead.precision}"
        rung, reference = winner.lead.stage.name, winner.lead.reference.name
        leads.append(f"{where}: {rung}, {winner.text} of the fastest reference, {reference}")
    blocks = [Group([_times(results), Sentences([*leads, *not_passed(results)], is_list=True)])]
    runs = {name: run_screen(run).facts for name, run in results.runs.items()}
    rows = [{"point": point, **row} for point, run in runs.items() for row in run["stages"]]
    return Screen(results.study.title, "", blocks, {"study": results.study, "runs": runs}, rows)


def _times(results: StudyResults) -> Table:
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
    whole = Column("us/step (min-max)", spreads, 3, is_number=True)
    return Table([
        Column("stage", stages),
        Column("us/step", times, is_number=True, wider=whole),
        Column("accuracy", accuracies, 2, is_number=True),
        Column("", remarks, 1, tone="doubtful"),
        Column("checked", checked, 2, tones=STATUS),
    ], headings)  # fmt: skip
