"""The README's figures and tables, generated between two markers from the recorded runs.

A recorded run is a folder `results/reference/<gpu>/<problem>` with its `results.json`, `report.md` and `figures/`.
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from ladder.results import Results, load
from reports.markdown import figure_links, notice_blocks, stage_table
from reports.render import replace_text
from reports.summary import caption, heading, notices

BEGIN = "<!-- ladder:begin -->"
END = "<!-- ladder:end -->"


class ReadmeError(Exception):
    """A README that the recorded runs cannot be put into: one line with the file, the reason and the way out."""


def readme_block(runs: list[tuple[str, Results]]) -> str:
    """What stands between the markers: for every run, given as (folder relative to the README, results), its part."""
    return "\n\n".join(part for folder, results in runs for part in _run_blocks(folder, results))


def recorded_runs(readme: Path, reference: Path) -> list[tuple[str, Results]]:
    """Every recorded run below `results/reference`, with its folder relative to the README: the smallest network first.

    Raises ladder.results.ResultsError for a file that cannot be read.
    """
    folders = sorted(file.parent for file in reference.glob("*/*/results.json"))
    runs = [(folder.relative_to(readme.parent).as_posix(), load(folder)) for folder in folders]
    return sorted(runs, key=lambda run: (PurePosixPath(run[0]).parent, run[1].problem.hidden))


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
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ReadmeError(f"{readme}: has no {BEGIN} followed by {END}; put both where the table belongs")
    block = readme_block(recorded_runs(readme, reference))
    inside = f"\n\n{block}\n\n" if block else "\n"
    return f"{before}{BEGIN}{inside}{END}{after}"


def _run_blocks(folder: str, results: Results) -> list[str]:
    gpu = PurePosixPath(folder).parent.name.upper()
    timed = any(stage.status == "passed" for stage in results.stages)
    links = figure_links(["epoch_time.svg"], f"{folder}/figures") if timed else []
    return [
        f"### {heading(results)}, on {gpu}",
        *notice_blocks(notices(results)),
        *links,
        stage_table(results),
        f"{caption(results)} [The whole report]({folder}/report.md), with every check and the loss curves.",
    ]
