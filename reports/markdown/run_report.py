"""`report.md`: the front page of a run for a code host or an editor, and a short screen a rung."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from ladder.records.run import Results
from reports.facts import numbers
from reports.facts.numbers import line
from reports.facts.provenance import gpu_name, provenance
from reports.facts.summary import MARKS, heading, reason, rows, table_order
from reports.facts.verdict import verdict_sentences
from reports.facts.warnings import NAMED_STAGES, notices
from reports.markdown.rung_section import rung_section
from reports.markdown.tables import FEW_COLUMNS, bullets, details, figure_links, notice_blocks, stage_table
from reports.views.rung import rung_view

REST = (
    "The page, `report.html` beside this file, has the rest: every column, kernels, timelines, checks, floors, code, "
    "machine and terms. Where it is missing, `python run_ladder.py report FOLDER` writes it, without a GPU."
)
FEW_WORDS = (
    "us/step: microseconds a training step, the median of all runs. x of from: how many times as fast as the rung that "
    "it climbs from, with the spread over processes; below 1x it is slower. x of best reference: the same against the "
    "fastest reference that is at least as exact."
)


def report(results: Results, figures: Collection[str]) -> str:
    """The whole report; `figures` names the files in the folder `figures` beside it."""
    found = notices(results)
    rungs = [stage for stage in table_order(results) if stage.group != "reference" and stage.status != "skipped"]
    quiet = [notice.text for notice in found if not notice.loud]
    blocks = [
        f"# {results.problem.network}, batch {results.problem.batch_size}, on {gpu_name(results) or 'a CPU'}",
        *notice_blocks([notice for notice in found if notice.loud]),
        " ".join(verdict_sentences(results)),
        *figure_links({"ladder.svg"} & set(figures), "figures"),
        *([] if figures else ["No stage was timed in this run, so there are no figures."]),
        f"{heading(results)}; {provenance(results)}",
        stage_table(results, FEW_COLUMNS, skipped=False),
        " ".join(filter(None, (FEW_WORDS, _marks(results), _skipped(results)))),
        *details("Noise and notices", [bullets(quiet)] if quiet else []),
        REST,
        *(["## Rungs"] if rungs else []),
        *(block for stage in rungs for block in rung_section(rung_view(stage, results))),
        *(["## More pictures"] if (more := set(figures) - {"ladder.svg"}) else []),
        *figure_links(more, "figures"),
    ]
    return "\n\n".join(blocks) + "\n"


def _marks(results: Results) -> str:
    """The legend of the marks behind times; empty without any."""
    return MARKS if any(row.disturbed for row in rows(results)) else ""


def _skipped(results: Results) -> str:
    """A sentence with the skipped stages, or with their number and the commonest reason; empty without any."""
    skipped = [stage for stage in results.stages if stage.status == "skipped"]
    if not skipped:
        return ""
    if len(skipped) <= NAMED_STAGES:
        return f"Skipped: {numbers.listing(f'`{stage.name}`' for stage in skipped)}; the page says why."
    ((why, number),) = Counter(map(reason, skipped)).most_common(1)
    most = f"{len(skipped)} stages, {number} of them for one reason: {line(why)}"
    return f"Skipped: {most}. The page has all reasons."
