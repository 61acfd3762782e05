"""`report.md`: the front page of a run for a code host or an editor, and a short screen a rung."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from ladder.records.run import Results
from reports.facts import numbers
from reports.facts.numbers import line
from reports.facts.run_table import networks_in_words, yardsticks
from reports.facts.warnings import NAMED_STAGES
from reports.markdown.tables import bullets, cell, figure_links, folded, laid_out, table, warning_box
from reports.screens.details import energy
from reports.screens.stages import report_table
from reports.views.run_view import RunView, run_view
from reports.views.rung_view import RungView, rung_view

REST = (
    "The page, `report.html` beside this file, has the rest: every column, kernels, timelines, checks, floors, code, "
    "machine and terms. Where it is missing, `python run_ladder.py report FOLDER` writes it, without a GPU."
)
FEW_WORDS = (
    "us/step: microseconds a training step, the median of all runs. x of from: how many times as fast as the rung that "
    "it climbs from, with the spread over processes; below 1x it is slower."
)


def report(results: Results, figures: Collection[str]) -> str:
    """The whole report; `figures` names the files in the folder `figures` beside it."""
    run = run_view(results)
    shown = [row for row in run.rows if row.stage.status != "skipped"]
    rungs = [row.stage for row in shown if not row.is_reference]
    blocks = [
        f"# {line(run.title)}",
        *map(warning_box, run.loud),
        line(" ".join(run.sentences)),
        *figure_links({"ladder.svg"} & set(figures), "figures"),
        *([] if figures else ["No stage was timed in this run, so there are no figures."]),
        line(f"{run.heading}; {run.provenance}"),
        laid_out(report_table(results, shown)),
        " ".join(filter(None, (FEW_WORDS, networks_in_words(results), yardsticks(results), run.marks, _skipped(run)))),
        *(
            block
            for grid in energy(results).grids
            for block in (table(grid.header, grid.lines, grid.right), line(grid.note))
        ),
        *folded("Noise and notices", [bullets(run.quiet)] if run.quiet else []),
        REST,
        *(["## Rungs"] if rungs else []),
        *(block for rung in rungs for block in rung_section(rung_view(rung, results))),
        *(["## More pictures"] if run.figures(figures) else []),
        *figure_links(run.figures(figures), "figures"),
    ]
    return "\n\n".join(blocks) + "\n"


def _skipped(run: RunView) -> str:
    """A sentence with the skipped stages, or with their number and the commonest reason; empty without any."""
    skipped = run.not_passed("skipped")
    names = [name for group in skipped for name in group.names]
    if not names:
        return ""
    if len(names) <= NAMED_STAGES:
        return f"Skipped: {numbers.listing(f'`{name}`' for name in names)}; the page says why."
    most = max(skipped, key=lambda group: len(group.names))
    told = f"{len(names)} stages, {len(most.names)} of them for one reason: {line(most.reason).removesuffix('.')}"
    return f"Skipped: {told}. The page has all reasons."


def rung_section(rung: RungView) -> Iterator[str]:
    """One rung, without its parent if that was not timed."""
    stage = rung.stage
    yield f"### `{stage.name}`: {line(rung.title)}"
    if stage.below:
        yield f"From `{stage.below}`: {line(rung.change_in_full)}."
    if rung.reason:
        yield f"**{stage.status.capitalize()}:** {line(rung.reason)}"
        return
    factor = rung.versus_parent
    measured = f"{rung.us} us" + (f", {factor.saying(f' of `{stage.below}`')}" if factor is not None else "")
    if rung.us and rung.predicted:
        yield table(("Predicted", "Measured", "Verdict"), [list(map(cell, (rung.predicted, measured, rung.verdict)))])
    elif rung.us and factor:
        yield f"**Measured:** {measured}."
    if rung.moved:
        yield f"**Moved:** {line(rung.moved)}"
    if rung.overlap:
        yield line(rung.overlap)
    if rung.advice is not None:
        yield f"**Bound now:** {line(str(rung.advice))}"
