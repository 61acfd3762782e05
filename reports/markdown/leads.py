"""The leads of the recorded runs and studies, in a sentence for README and in a table for docs/studies.md."""

from __future__ import annotations

from pathlib import Path

from ladder.records.files import atomic_write
from reports.facts import numbers
from reports.facts.baselines import overall_winner
from reports.facts.provenance import commit
from reports.facts.study_points import PointLead, StudyResults, overall_winners, point_text
from reports.figures.study_figures import seeds_of
from reports.markdown.readme import Runs, between, is_of_cpu, recorded_runs
from reports.markdown.readme_published import recorded_studies
from reports.markdown.tables import cell, code, table

COMMIT_DIGITS = 7
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
    """The largest and the smallest lead of the fastest rung in a GPU's network, and the smallest one of a study."""
    found = sorted(
        ((run.problem.network, one) for _, run in runs if not is_of_cpu(run) and (one := overall_winner(run))),
        key=lambda pair: -pair[1].ratio.times,
    )
    if not found:
        return ""
    ends = [
        f"{one.ratio.text} in {network}{' (GPU time)' * one.on_gpu_time}"
        for network, one in ([found[0], found[-1]] if len(found) > 1 else found)
    ]
    waits = " GPU time: without the reference's own waits." * found[0][1].on_gpu_time
    text = (
        "**The lead** of the fastest rung over the fastest reference (NumPy, PyTorch, JAX) that is at least as exact: "
        f"{' down to '.join(ends)}.{waits}"
    )
    least = min(
        ((results, one) for results in studies for one in overall_winners(results)),
        key=lambda pair: pair[1].lead.ratio.times,
        default=None,
    )
    if least is not None:
        results, at = least
        where = f"in `{results.study.name}` at {point_text(at.point)}"
        text += f" In the [studies](docs/studies.md) it shrinks to {at.text}, {where}."
    return text


def leads_table(studies: list[StudyResults]) -> str:
    """The lead of the fastest rung of any precision at every point of the recorded studies; empty without any.

    Each row names its commit: rows of one problem from two commits may differ.
    """
    lines = [
        (
            f"`{results.study.name}`",
            cell(point_text(one.point)),
            code(one.lead.stage.name),
            code(one.lead.reference.name),
            _lead(one),
            commit(results.runs[one.point.name])[:COMMIT_DIGITS],
        )
        for results in studies
        for one in overall_winners(results)
    ]
    columns = ("Study", "Point", "Fastest rung", "Fastest reference", "Lead", "Commit")
    return table(columns, lines, right=[False] * 4 + [True, False]) if lines else ""


def _lead(one: PointLead) -> str:
    return cell(one.text + (f" ({numbers.listing(one.missing)})" if one.missing else ""))


def _pages(readme: Path, studies_page: Path, reference: Path) -> list[tuple[Path, str]]:
    # A study of curves times short runs only.
    studies = [results for results in recorded_studies(reference) if not seeds_of(results)]
    blocks = {readme: leads_sentence(recorded_runs(readme, reference), studies), studies_page: leads_table(studies)}
    return [(page, between(page.read_text(encoding="utf-8"), page, MARKERS, block)) for page, block in blocks.items()]
