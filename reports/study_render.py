"""Everything that is drawn, written and printed of a study."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from reports.facts import numbers
from reports.facts.study import (
    StudyResults,
    load_results,
    name_of,
    not_passed,
    point_text,
    races,
    spread_text,
    step_us,
    value_text,
)
from reports.figures.ablation_figures import side_figure
from reports.figures.curves import curves_csv
from reports.figures.study_figures import seeds_of, study_figures
from reports.figures.style import svg
from reports.markdown.ablation_section import FIGURES, side
from reports.markdown.study_report import side_figure_name, study_csv, study_report
from reports.render import replace_text
from reports.terminal.tables import STATUS_STYLE, plain_table, wide_enough


def render_study(folder: Path) -> StudyResults:
    """Write `report.md` and `figures/` into a study's folder, and return what is in it.

    ResultsError where a file cannot be read, OSError where the folder cannot be written to.
    """
    results = load_results(folder)
    drawn = study_figures(results) | _side_figures(results)
    figures = folder / "figures"
    figures.mkdir(exist_ok=True)
    if seeds_of(results):
        runs = {tuple(value_text(value) for value in point.values.values()): point for point in results.measured}
        header = results.study.varied
        drawn["curves.csv"] = curves_csv({key: results.runs[point.name] for key, point in runs.items()}, header)
    for older in {*figures.glob("*.svg"), *figures.glob("*.csv")} - {figures / name for name in drawn}:
        older.unlink()  # an earlier rendering's, which the report no longer shows
    for name, text in drawn.items():
        replace_text(figures / name, text)
    replace_text(figures / "study.csv", study_csv(results))
    replace_text(folder / "report.md", study_report(results, drawn.keys()))
    return results


def _side_figures(results: StudyResults) -> dict[str, str]:
    """A figure for each point and side group that has profiles there."""
    return {
        side_figure_name(group, name): svg(side_figure(run, group))
        for name, run in results.runs.items()
        for group in FIGURES
        if side(run, group)
    }


def print_study(results: StudyResults, folder: Path, console: Console | None = None) -> None:
    """Print the time of a step at every point, who is fastest there, and why anything has no time."""
    console = wide_enough(console)
    console.print()
    console.print(Text(results.study.title, "bold"), soft_wrap=True)
    console.print(_times(results))
    for point, race in races(results):
        console.print(
            Text(
                f"* {point_text(point)}, {race.precision}: {race.rung.name} {numbers.ratio(race.speedup)} "
                f"the speed of {race.reference.name}"
            ),
            soft_wrap=True,
        )
    for line in not_passed(results):
        console.print(Text(f"* {line}"), soft_wrap=True)
    console.print(Text(f"study.json and report.md, with its figures, are in {folder}"), soft_wrap=True)


def _times(results: StudyResults) -> Table:
    """A line for every point and stage, since a terminal has no room for a column a point."""
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
                table.add_row(Text(name), Text(name_of(here)), spread_text(step_us(here)), status)
                name = ""
    return table
