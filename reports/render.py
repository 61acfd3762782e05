"""Everything that is drawn or written from a run, put beside its `results.json`."""

from __future__ import annotations

from pathlib import Path

from ladder.records.files import atomic_write
from ladder.records.run import Results
from reports.facts.ablations import FIGURES, side
from reports.facts.profiles import PICTURE
from reports.facts.study import (
    StudyResults,
    load_results,
    value_text,
)
from reports.figures.ablation_figures import side_figure
from reports.figures.curves import curves_csv
from reports.figures.run_figures import figures
from reports.figures.study_figures import seeds_of, study_figures
from reports.figures.style import svg
from reports.markdown.run_report import report
from reports.markdown.study_report import side_figure_name, study_csv, study_report
from reports.markdown.tables import FIGURE_TITLES


def render_all(results: Results, folder: Path) -> None:
    """Write `report.md` and `figures/*.svg` into the folder; OSError where it cannot be written to."""
    drawn = figures(results)
    figure_folder = folder / "figures"
    figure_folder.mkdir(exist_ok=True)
    for name, text in drawn.items():
        atomic_write(figure_folder / name, text)
    older = {*(figure_folder / name for name in FIGURE_TITLES), *figure_folder.glob(f"{PICTURE}*.svg")}
    for path in older - {figure_folder / name for name in drawn}:
        path.unlink(missing_ok=True)  # an older rendering's, which the report no longer shows
    atomic_write(folder / "report.md", report(results, drawn.keys()))


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
        atomic_write(figures / name, text)
    atomic_write(figures / "study.csv", study_csv(results))
    atomic_write(folder / "report.md", study_report(results, drawn.keys()))
    return results


def _side_figures(results: StudyResults) -> dict[str, str]:
    """A figure for each point and side group that has profiles there."""
    return {
        side_figure_name(group, name): svg(side_figure(run, group))
        for name, run in results.runs.items()
        for group in FIGURES
        if side(run, group)
    }
