"""The README's figures and tables, generated between two markers from the recorded runs.

A recorded run is a folder `results/reference/<gpu>/<problem>` with its `results.json`, `report.md` and `figures/`.
"""

from __future__ import annotations

from itertools import groupby
from pathlib import Path, PurePosixPath

from ladder.results import Results, load
from reports.markdown import README_COLUMNS, figure_links, notice_blocks, stage_table
from reports.notices import notices
from reports.provenance import provenance
from reports.render import replace_text
from reports.summary import HOW_TO_READ, heading, yardsticks

BEGIN = "<!-- ladder:begin -->"
END = "<!-- ladder:end -->"


class ReadmeError(Exception):
    """A README that the recorded runs cannot be put into: one line with the file, the reason and the way out."""


def readme_block(runs: list[tuple[str, Results]]) -> str:
    """What stands between the markers, of runs given as (folder relative to the README, results).

    Each has its table; the figure is that of each GPU's first run, and the reports have the others.
    """
    blocks = [f"us/step is the median of all runs; preparation is not in it. {HOW_TO_READ}"] if runs else []
    for gpu, group in groupby(runs, key=_gpu):
        for index, (folder, results) in enumerate(group):
            blocks += _run_blocks(folder, results, gpu, with_figure=index == 0)
    return "\n\n".join(blocks)


def recorded_runs(readme: Path, reference: Path) -> list[tuple[str, Results]]:
    """The runs below `results/reference` with their folders relative to the README, the shallowest network first.

    Raises ladder.results.ResultsError for a file that cannot be read.
    """
    folders = sorted(file.parent for file in reference.glob("*/*/results.json"))
    runs = [(folder.relative_to(readme.parent).as_posix(), load(folder)) for folder in folders]
    return sorted(runs, key=_by_gpu_and_depth)


def update_readme(readme: Path, reference: Path) -> bool:
    """Put the recorded runs into the README; whether that changed it. Raises ReadmeError, ResultsError or OSError."""
    old = readme.read_text(encoding="utf-8")
    new = _updated(old, readme, reference)
    if new != old:
        replace_text(readme, new)
    return new != old


def readme_is_current(readme: Path, reference: Path) -> bool:
    """Whether the README shows just what the recorded runs say. Raises as `update_readme` does."""
    text = readme.read_text(encoding="utf-8")
    return _updated(text, readme, reference) == text


def _updated(text: str, readme: Path, reference: Path) -> str:
    return between(text, readme, (BEGIN, END), readme_block(recorded_runs(readme, reference)))


def between(text: str, readme: Path, markers: tuple[str, str], block: str) -> str:
    """The README's text with a block between two markers; ReadmeError where they are not there."""
    first, last = markers
    before, begin, rest = text.partition(first)
    _, end, after = rest.partition(last)
    if not begin or not end:
        raise ReadmeError(f"{readme}: has no {first} followed by {last}; put both where the table belongs")
    inside = f"\n\n{block}\n\n" if block else "\n"
    return f"{before}{first}{inside}{last}{after}"


def _by_gpu_and_depth(run: tuple[str, Results]) -> tuple[str, int, list[int]]:
    hidden = run[1].problem.hidden
    return _gpu(run), len(hidden), hidden


def _gpu(run: tuple[str, Results]) -> str:
    return PurePosixPath(run[0]).parent.name.upper()


def _run_blocks(folder: str, results: Results, gpu: str, *, with_figure: bool) -> list[str]:
    timed = any(stage.status == "passed" for stage in results.stages)
    return [
        f"### {heading(results)}, on {gpu}",
        provenance(results),
        *notice_blocks(notices(results)),
        *(figure_links(["epoch_time.svg"], f"{folder}/figures") if timed and with_figure else []),
        stage_table(results, README_COLUMNS),
        f"{yardsticks(results)} [The whole report]({folder}/report.md) has ms/epoch with its spread, memory, "
        "preparation, every check and the figures.",
    ]
