"""The screen of a study: a step's time at every point, the fastest rungs, and the reasons for missing times."""

from __future__ import annotations

from ladder.records.run import StageResult
from reports.facts import numbers
from reports.facts.run_table import name_of, passed_in_words
from reports.facts.study_points import (
    StudyResults,
    accuracy_text,
    is_disturbed,
    not_passed,
    point_text,
    point_winners,
)
from reports.facts.times import median_us, step_us
from reports.screens.blocks import ColumnOf, Group, Screen, Sentences, Table, number
from reports.screens.run import run_screen
from reports.screens.stages import STATUS

SPREAD: ColumnOf[StageResult] = number("us/step (min-max)", lambda here: numbers.spread_microseconds(step_us(here)), 3)


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
    rows: list[StageResult] = []
    headings = {}
    for point in results.measured:
        headings[len(rows)] = point_text(point)
        every = (results.at(point, stage.name) for stage in results.stages())
        rows += [here for here in every if here is not None and here.status != "skipped"]
    columns: list[ColumnOf[StageResult]] = [
        ColumnOf("stage", name_of),
        number("us/step", lambda here: numbers.microseconds(median_us(here)), wider=SPREAD),
        number("accuracy", lambda here: accuracy_text(results, here), 2),
        ColumnOf("", lambda here: "disturbed" * is_disturbed(here), 1, tone="doubtful"),
        ColumnOf("checked", lambda here: passed_in_words(here) if here.status == "passed" else here.status, 2,
                 tones=STATUS),
    ]  # fmt: skip
    return Table([column.over(rows) for column in columns], headings)
