"""The leads of the recorded runs and studies, in a sentence for README and in a table for docs/studies.md."""

from __future__ import annotations

from pathlib import Path

from ladder.records.files import atomic_write
from reports.facts import numbers
from reports.facts.baselines import overall_winner
from reports.facts.study import PointLead, StudyResults, overall_winners, point_text
from reports.figures.study_figures import seeds_of
from reports.markdown.readme import Runs, between, recorded_runs
from reports.markdown.readme_published import recorded_studies
from reports.markdown.tables import cell, code, table

MARKERS = ("<!-- leads:begin -->", "<!-- leads:end -->")


def update_leads(readme: Path, studies_page: Path, reference: Path) -> bool:
    """Put the leads into both pages; whether that changed one. Raises ReadmeError, ResultsError or OSError."""
    changed = False
    for page, new in _pages(readme, studies_page, reference):
        if new != page.read_text(encoding="utf-8"):
            atomic_write(page, new)
            changed = True
    return changed


def leads_are_current(readme: Path, studies_page: Path, reference: Path) -> bool:
    """Whether both pages show the recorded leads as they are. Raises as `update_leads` does."""
    return all(new == page.read_text(encoding="utf-8") for page, new in _pages(readme, studies_page, reference))


def leads_sentence(runs: Runs, studies: list[StudyResults]) -> str:
    """The lead of the fastest rung in each recorded network, and the smallest one of a study; empty without any."""
    found = [(run.problem.network, one) for _, run in runs if (one := overall_winner(run))]
    if not found:
        return ""
    each = [f"{one.ratio.saying(f' in {network}')}{' (GPU time)' * one.on_gpu_time}" for network, one in found]
    least = min(
        ((results, one) for results in studies for one in overall_winners(results)),
        key=lambda pair: pair[1].lead.ratio.times,
        default=None,
    )
    text = (
        f"**The lead** of the fastest rung, as x of the fastest reference at least as exact: {numbers.listing(each)}."
    )
    if least is not None:
        results, at = least
        text += f" It is smallest, {at.text}, in the study `{results.study.name}` at {point_text(at.point)}."
    return text


def leads_table(studies: list[StudyResults]) -> str:
    """The lead of the fastest rung of any precision at every point of the recorded studies; empty without any."""
    lines = [
        (
            f"`{results.study.name}`",
            cell(point_text(one.point)),
            code(one.lead.stage.name),
            code(one.lead.reference.name),
            _lead(one),
        )
        for results in studies
        for one in overall_winners(results)
    ]
    columns = ("Study", "Point", "Fastest rung", "Fastest reference", "Lead")
    return table(columns, lines, right=[False] * 4 + [True]) if lines else ""


def _lead(one: PointLead) -> str:
    return cell(one.text + (f" ({numbers.listing(one.missing)})" if one.missing else ""))


def _pages(readme: Path, studies_page: Path, reference: Path) -> list[tuple[Path, str]]:
    # A study of curves times short runs only.
    studies = [results for results in recorded_studies(reference) if not seeds_of(results)]
    blocks = {readme: leads_sentence(recorded_runs(readme, reference), studies), studies_page: leads_table(studies)}
    return [(page, between(page.read_text(encoding="utf-8"), page, MARKERS, block)) for page, block in blocks.items()]
