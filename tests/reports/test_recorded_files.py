"""Every recorded run, study and ladder over a user's model is rendered as its report and its figures were kept."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from ladder.records import torch_run
from ladder.records.run import load
from ladder.records.study import INDEX
from reports.facts.profiles import PICTURE
from reports.facts.study_points import load_results
from reports.figures.canvas import Canvas
from reports.figures.chart import FILE
from reports.figures.run_figures import drawings, study_drawings
from reports.render import linked, torch_screen
from reports.screens.blocks import Figure
from reports.writers.markdown import markdown
from tests.reports.reporting import report, study_report

KEPT_IN = sorted(
    path.parent for folder in ("reference", "languages/h200") for path in Path("results", folder).glob("**/report.md")
)


def test_all_results_take_at_most_9_mb() -> None:
    if not Path(".git").exists():
        pytest.skip("no repository here: git knows which files are kept")
    kept = subprocess.check_output(["git", "ls-files", "-z", "results"], text=True).split("\0")
    assert sum(Path(file).stat().st_size for file in kept if Path(file).is_file()) <= 9_000_000


def rendered(folder: Path) -> tuple[str, dict[str, Callable[[], Canvas]]]:
    """The document, and the function that draws each figure, by the name of its file."""
    if torch_run.has_record(folder):
        screen = torch_screen(torch_run.load(folder), folder)
        figures = [block for block in screen.blocks if isinstance(block, Figure)]
        return markdown(screen), {block.file: lambda block=block: block.draw(FILE) for block in figures}  # type: ignore[misc]
    if (folder / INDEX).exists():
        canvases = dict(study_drawings(results := load_results(folder)))
        return study_report(results, canvases), {name: lambda one=one: one for name, one in canvases.items()}  # type: ignore[misc]
    drawn = drawings(run := load(folder))
    return report(run, drawn), drawn


@pytest.mark.parametrize("folder", KEPT_IN, ids=str)
def test_a_recorded_folder_is_rendered_as_kept(folder: Path) -> None:
    document, drawn = rendered(folder)
    document = linked(document, folder)
    again = f"`python run_ladder.py report {folder}` writes it again"
    assert (folder / "report.md").read_text(encoding="utf-8") == document, again
    kept = {
        file.name: file.read_text(encoding="utf-8")
        for file in (folder / "figures").glob("*.svg")
        if not file.name.startswith(PICTURE)
    }
    assert {name for name in drawn if not name.startswith(PICTURE)} == set(kept), again
    assert [name for name in kept if kept[name] != drawn[name]().svg()] == [], again
