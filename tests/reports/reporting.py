"""The report of a run and the explanation of a stage, as text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from ladder.records.run import Results
from reports.facts.study_points import StudyResults
from reports.figures.canvas import Canvas
from reports.figures.run_figures import study_drawings
from reports.screens.blocks import Table
from reports.screens.run import NO_FIGURES, report_screen
from reports.screens.rung import rung_screen
from reports.screens.study import study_report_screen
from reports.writers.markdown import markdown
from reports.writers.terminal import write_terminal
from tests.reports.terminal.screens import screen


def report(run: Results, drawn: Mapping[str, Callable[[], Canvas]] = NO_FIGURES) -> str:
    """The document of a run."""
    return markdown(report_screen(run, drawn))


def study_report(results: StudyResults, drawn: Mapping[str, Canvas] = MappingProxyType({})) -> str:
    """The document of a study."""
    return markdown(study_report_screen(results, drawn))


def study_figures(results: StudyResults) -> dict[str, str]:
    """The figures of a study as SVG."""
    return {name: canvas.svg() for name, canvas in study_drawings(results)}


def explanation(
    run: Results, name: str, width: int = 100, folder: Path | None = None, recorded: Path | None = None
) -> str:
    """A stage on a terminal."""
    return screen(lambda console: write_terminal(rung_screen(run, name, folder, recorded), console), width)


def rows_of(table: Table) -> list[dict[str, str]]:
    """The cells of each row by the headers of their columns."""
    headers = [column.header for column in table.columns]
    cells = zip(*(column.cells for column in table.columns), strict=True)
    return [dict(zip(headers, row, strict=True)) for row in cells]
