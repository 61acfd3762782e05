"""The leads of the recorded runs and studies, in a sentence for README and in a table for docs/studies.md."""

from __future__ import annotations

from collections.abc import Sequence

from reports.facts import numbers
from reports.facts.baselines import overall_winner
from reports.facts.provenance import commit
from reports.facts.study_points import PointLead, StudyResults, overall_winners, point_text
from reports.figures.study_figures import seeds_of
from reports.markdown.readme import Runs
from reports.markdown.tables import cell, code, table

COMMIT_DIGITS = 7


def leads_sentence(runs: Runs, studies: list[StudyResults]) -> str:
    """The largest and the smallest lead of the fastest rung in a GPU's network, and the smallest one of a study."""
    found = sorted(
        ((run.problem.network, one) for _, run in runs if (one := overall_winner(run))),
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
        ((results, one) for results in _timed(studies) for one in overall_winners(results)),
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
        for results in _timed(studies)
        for one in overall_winners(results)
    ]
    columns = ("Study", "Point", "Fastest rung", "Fastest reference", "Lead", "Commit")
    return table(columns, lines, right=[False] * 4 + [True, False]) if lines else ""


def _timed(studies: Sequence[StudyResults]) -> list[StudyResults]:
    """All but those of curves, which time short runs only."""
    return [results for results in studies if not seeds_of(results)]


def _lead(one: PointLead) -> str:
    return cell(one.text + (f" ({numbers.listing(one.missing)})" if one.missing else ""))
