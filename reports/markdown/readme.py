"""The README's figures and tables, generated between two markers from the recorded runs.

A recorded run is a folder `results/reference/<gpu>/<problem>` with its `results.json`, `report.md` and `figures/`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path, PurePosixPath

from ladder.records.files import atomic_write
from ladder.records.run import Results, StageResult, load
from reports.facts import numbers
from reports.facts.baselines import winners
from reports.facts.provenance import provenance
from reports.facts.summary import HOW_TO_READ, heading, yardsticks
from reports.facts.warnings import notices
from reports.markdown.tables import README_COLUMNS, figure_links, notice_blocks, stage_table, table

BEGIN = "<!-- ladder:begin -->"
END = "<!-- ladder:end -->"


class ReadmeError(Exception):
    """A README that the recorded runs cannot be put into: one line with the file, the reason and the way out."""


def readme_block(runs: list[tuple[str, Results]]) -> str:
    """What stands between the markers, of runs given as (folder relative to the README, results).

    Each GPU has a table of all its runs, then its first run whole, with figure; the reports have the others.
    """
    blocks = []
    for gpu, group in groupby(runs, key=_gpu):
        recorded = list(group)
        blocks += [*_overview(gpu, recorded), *_run_blocks(*recorded[0], gpu)]
    return "\n\n".join(blocks)


def recorded_runs(readme: Path, reference: Path) -> list[tuple[str, Results]]:
    """The runs below `results/reference` with their folders relative to the README, the shallowest network first.

    Raises ladder.records.run.ResultsError for a file that cannot be read.
    """
    folders = sorted(file.parent for file in reference.glob("*/*/results.json"))
    runs = [(folder.relative_to(readme.parent).as_posix(), load(folder)) for folder in folders]
    return sorted(runs, key=_by_gpu_and_depth)


def update_readme(readme: Path, reference: Path) -> bool:
    """Put the recorded runs into the README; whether that changed it. Raises ReadmeError, ResultsError or OSError."""
    old = readme.read_text(encoding="utf-8")
    new = _updated(old, readme, reference)
    if new != old:
        atomic_write(readme, new)
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


def _overview(gpu: str, runs: Sequence[tuple[str, Results]]) -> Iterator[str]:
    """Who is the fastest in each run, among the rungs and among the references."""
    yield f"### Every recorded network, on {gpu}"
    yield (
        "us/step, in each class of precision: the classic ladder's last rung, the fastest rung, and the fastest "
        "reference of the same run."
    )
    yield from notice_blocks(list({loud.text: loud for _, run in runs for loud in notices(run) if loud.loud}.values()))
    columns = ("Network, batch", "Precision", "cuda-graph", "Fastest rung", "us/step", "Fastest reference", "us/step")
    lines = [(_link(folder, run), *cells) for folder, run in runs for cells in _winners(run)]
    yield table((*columns, "vs"), lines, right=[False, False, True, False, True, False, True, True])


def _link(folder: str, run: Results) -> str:
    return f"[{run.problem.network}, {run.problem.batch_size}]({folder}/report.md)"


def _winners(run: Results) -> list[tuple[str, ...]]:
    """A line for each class of precision; one of dashes where there is nothing to compare."""
    graph = {stage.precision: _step(stage) for stage in run.stages if stage.name == "cuda-graph"}
    return [
        (
            winner.precision,
            graph.get("float32", numbers.MISSING) if winner.precision == "float32" else "",
            f"`{winner.rung.name}`",
            _step(winner.rung),
            f"`{winner.reference.name}`",
            _step(winner.reference),
            numbers.ratio(winner.speedup),
        )
        for winner in winners(run)
    ] or [(numbers.MISSING,) * 7]


def _step(stage: StageResult) -> str:
    return numbers.microseconds(stage.timing.step_us if stage.timing else None)


def _run_blocks(folder: str, results: Results, gpu: str) -> list[str]:
    timed = any(stage.status == "passed" for stage in results.stages)
    return [
        f"### {heading(results)}, on {gpu}",
        f"us/step is the median of all runs; preparation is not in it. {HOW_TO_READ}",
        provenance(results),
        *notice_blocks(notices(results)),
        *(figure_links(["epoch_time.svg"], f"{folder}/figures") if timed else []),
        stage_table(results, README_COLUMNS),
        f"{yardsticks(results)} [The whole report]({folder}/report.md) has ms/epoch with its spread, memory, "
        "preparation, every check and the figures.",
    ]
