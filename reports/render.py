"""Writes the report and the figures of a run or a study beside its results."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from ladder.records.files import atomic_write
from ladder.records.run import Results, load
from ladder.records.sources import sources_of
from ladder.records.study import INDEX
from reports.compare.run_lookup import newest_run, recorded_like
from reports.explorer import browser
from reports.explorer.page import render
from reports.explorer.study_page import render_study_page
from reports.facts.ablations import FIGURES, ablation
from reports.facts.profiles import PICTURE
from reports.facts.study_points import StudyResults, load_results, value_text
from reports.figures.ablation_figures import ablation_figure
from reports.figures.loss_curves import curves_csv
from reports.figures.run_figures import figures
from reports.figures.study_figures import seeds_of, study_figures
from reports.markdown.run_report import report
from reports.markdown.study_report import ablation_figure_name, study_csv, study_report
from reports.markdown.tables import FIGURE_TITLES
from reports.terminal.as_json import Form, show
from reports.terminal.print_run import print_results
from reports.terminal.print_study import print_study
from reports.terminal.recorded import nearest_recorded
from reports.terminal.run_json import run_facts

PAGE = "report.html"
RENAMED = ("epoch_time.svg", "loss_curves.svg")  # figures of older renderings


def render_all(results: Results, folder: Path, reference: Path | None = None) -> None:
    """Write `report.md`, `report.html` and `figures/*.svg` into the folder; OSError if it is not writable.

    `reference` holds the recorded runs, one of which the page compares this run with.
    """
    drawn = figures(results)
    figure_folder = folder / "figures"
    figure_folder.mkdir(exist_ok=True)
    for name, text in drawn.items():
        atomic_write(figure_folder / name, text)
    older = {*(figure_folder / name for name in (*FIGURE_TITLES, *RENAMED)), *figure_folder.glob(f"{PICTURE}*.svg")}
    for path in older - {figure_folder / name for name in drawn}:
        path.unlink(missing_ok=True)  # left over from an older rendering
    atomic_write(folder / "report.md", report(results, drawn.keys()))
    recorded = recorded_like(results, reference) if reference else None
    nearest = nearest_recorded(results, reference) if reference else None
    example = nearest[0].relative_to(reference.parents[1]).as_posix() if nearest and reference else ""
    page = render(results, sources_of(results, folder), recorded, example)
    atomic_write(folder / PAGE, page)


def render_study(folder: Path) -> StudyResults:
    """Write `report.md`, `report.html` and `figures/` into a study's folder, and return the study's results.

    Raises ResultsError for a file that cannot be read, OSError if the folder is not writable.
    """
    results = load_results(folder)
    drawn = study_figures(results) | _ablation_figures(results)
    figures = folder / "figures"
    figures.mkdir(exist_ok=True)
    if seeds_of(results):
        runs = {tuple(value_text(value) for value in point.values.values()): point for point in results.measured}
        header = results.study.varied
        drawn["curves.csv"] = curves_csv({key: results.runs[point.name] for key, point in runs.items()}, header)
    for older in {*figures.glob("*.svg"), *figures.glob("*.csv")} - {figures / name for name in drawn}:
        older.unlink()  # left over from an older rendering
    for name, text in drawn.items():
        atomic_write(figures / name, text)
    atomic_write(figures / "study.csv", study_csv(results))
    atomic_write(folder / "report.md", study_report(results, drawn.keys()))
    atomic_write(folder / PAGE, render_study_page(results))
    return results


def report_again(path: Path, reference: Path, form: Form = "table") -> None:
    """Render and print the run or the study in a file or folder.

    A run without a GPU is shown with the nearest run in the folder `reference`.
    Raises ResultsError for a file that cannot be read, and, once the run is printed, OSError if the folder is not
    writable.
    """
    if path.name == INDEX:
        path = path.parent
    if (path / INDEX).exists():
        study = render_study(path)
        show(study, partial(print_study, folder=path), form, _study_facts)
    else:
        results, folder = load(path), path if path.is_dir() else path.parent
        try:
            render_all(results, folder, reference)
        except OSError:
            show(results, partial(print_results, recorded=reference), form, run_facts)
            raise
        show(results, partial(print_results, folder=folder, recorded=reference), form, run_facts)


def _study_facts(study: StudyResults) -> dict[str, object]:
    return {"study": study.study, "runs": {name: run_facts(run) for name, run in study.runs.items()}}


def show_page(path: Path | None, runs: Path, reference: Path) -> None:
    """Open the page of the run or study in a file or folder, else of the newest run; render it if it is not up to date.

    Raises ReportError if there is no run, ResultsError for a file that cannot be read, OSError if the folder is not
    writable.
    """
    path = path or newest_run(runs, reference)
    folder = path if path.is_dir() else path.parent
    page, results = folder / PAGE, folder / "results.json"
    if (folder / INDEX).exists():
        render_study(folder)
    elif not page.exists() or not results.exists() or page.stat().st_mtime < results.stat().st_mtime:
        render_all(load(path), folder, reference)
    browser.show(page)


def _ablation_figures(results: StudyResults) -> dict[str, str]:
    """A figure for each point and ablation with profiles."""
    return {
        ablation_figure_name(group, name): ablation_figure(run, group)
        for name, run in results.runs.items()
        for group in FIGURES
        if ablation(run, group)
    }
