"""The screen of a run: its problem, what went wrong, and a table of one line a rung."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ladder.records.run import Results
from reports.facts import numbers
from reports.facts.energy import how_to_read_energy, why_none
from reports.facts.run_table import Row, heading, networks_in_words, skipped_in_words
from reports.facts.warnings import not_made_in_words
from reports.screens.blocks import Block, Group, Screen, Sentences
from reports.screens.stages import ABOUT, BEST, FROM, STAR, UNDECIDED, remarks, row_facts, stage_table
from reports.views.run_view import RunView, run_view

REMARKS = {
    "throttled": "the GPU slowed itself down",
    "disturbed": "other work ran beside it",
    "shortened": "fewer epochs, to save time (--budget)",
    "expected to lose": "by a model of recorded runs",
}
MOST_REASONS = 3  # lines on stages that failed or crashed; the report has all of them


def run_screen(results: Results) -> Screen:
    """A run; its report and what to do next follow it."""
    run = run_view(results)
    shown = [row for row in run.rows if row.stage.status != "skipped"]
    skipped = {name: row.reason for row in run.not_passed("skipped") for name in row.names}
    missing = Sentences([skipped_in_words(skipped, len(results.stages))] if skipped else [])
    warnings = [Sentences(run.loud, "alarm", is_list=True), missing, _broken(run)]
    facts = {"problem": results.problem, "stages": row_facts(results, run.rows), "notices": run.notices}
    blocks = [Group(list(_table(results, shown)))] if shown else []
    return Screen(heading(results, explained=True), "", blocks, facts, "stages", warnings)


def _table(results: Results, shown: Sequence[Row]) -> Iterator[Block]:
    yield stage_table(results, shown, lambda texts: _how_to_read(shown, texts))
    yield Sentences([told] if (told := networks_in_words(results)) else [])
    yield Sentences(list(filter(None, (how_to_read_energy(results), why_none(results)))), "quiet")
    yield Sentences(list(not_made_in_words(results)), "doubtful")


def _broken(run: RunView) -> Sentences:
    """A line for each reason why stages failed or crashed."""
    broken = run.not_passed("failed", "crashed")
    lines = [f"{numbers.brief(stage.names)} {stage.status}: {stage.reason}" for stage in broken]
    if (more := len(lines) - MOST_REASONS) > 0:
        lines[MOST_REASONS:] = [f"{numbers.count(more, 'more reason')} in the report."]
    return Sentences(lines, "bad", is_list=True)


def _how_to_read(shown: Sequence[Row], texts: Sequence[str]) -> str:
    """The meaning of the headers and marks that a writer shows."""
    of_row = [list(remarks(row)) for row in shown]
    said = {word for words in of_row for word in words}
    star = f"{STAR} " if STAR in texts else ""
    others = [word for word in REMARKS if any(word in words[1:] for words in of_row)]
    parts = ["x of: times as fast"] if {FROM, BEST} & set(texts) else []
    parts += ["best: the fastest reference as exact"] if BEST in texts else []
    parts += [f"{ABOUT}: within the noise"] if any(text.startswith(ABOUT) for text in texts) else []
    if any(text.startswith(UNDECIDED) for text in texts):
        parts.append(f"{UNDECIDED}: rounding decides some checks, as its controls show; the report names them")
    parts += [f"{star}{word}: {meaning}" for word, meaning in REMARKS.items() if word in said]
    if any(text.endswith(STAR) and text != STAR for text in texts):
        parts.append(f"{STAR}: also {' or '.join(others)}")
    return "; ".join(parts) + "." if parts else ""
