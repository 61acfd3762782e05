"""Everything that is drawn or written from a run, put beside its `results.json`."""

from __future__ import annotations

from pathlib import Path

from ladder.records.run import Results
from reports.figures.run_figures import figures
from reports.figures.timeline import PICTURE
from reports.markdown.run_report import report
from reports.markdown.tables import FIGURE_TITLES


def render_all(results: Results, folder: Path) -> None:
    """Write `report.md` and `figures/*.svg` into the folder; OSError where it cannot be written to."""
    drawn = figures(results)
    figure_folder = folder / "figures"
    figure_folder.mkdir(exist_ok=True)
    for name, text in drawn.items():
        replace_text(figure_folder / name, text)
    older = {*(figure_folder / name for name in FIGURE_TITLES), *figure_folder.glob(f"{PICTURE}*.svg")}
    for path in older - {figure_folder / name for name in drawn}:
        path.unlink(missing_ok=True)  # an older rendering's, which the report no longer shows
    replace_text(folder / "report.md", report(results, drawn.keys()))


def replace_text(path: Path, text: str) -> None:
    """Write a file so that a reader finds the old text or the new one, never a part of it."""
    temporary = path.with_name(path.name + ".part")
    try:
        temporary.write_text(text, encoding="utf-8", newline="\n")
        temporary.replace(path)
    except OSError:  # a full disk, above all, which needs no half of a file
        temporary.unlink(missing_ok=True)
        raise
