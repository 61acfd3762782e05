"""The page of a study: its answer, and the ladder of each point to climb."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any
from urllib.parse import quote

from markupsafe import Markup

from reports.explorer.page import data_of, skeleton
from reports.facts import numbers
from reports.facts.baselines import fastest
from reports.facts.provenance import origins
from reports.facts.run_table import FASTEST_REFERENCE
from reports.facts.study_points import PointLead, StudyResults, not_passed, overall_winners, point_text
from reports.facts.times import step_us
from reports.facts.verdict import study_savings, study_sentences
from reports.figures.chart import FILE, NARROW
from reports.figures.run_figures import seeds_of, study_drawings
from reports.screens.run import loud_notices
from reports.writers.html import both, prose, template

MOST_FIGURES = 6  # one of curves takes 250 KB, a third of it packed; all stand beside report.md


def render_study_page(results: StudyResults, home: str = "") -> str:
    """The whole page as HTML text, the same bytes for the same study.

    It has no code and no timelines, which each point's own page has: sixty points stay within two megabytes. `home` is
    the way to the folder of a site's front page, for a page that belongs to a site.
    """
    study = results.study
    points = results.measured
    data = _by_stage({point.name: data_of(results.runs[point.name], is_brief=True) for point in points})
    leads = {winner.point.name: winner for winner in overall_winners(results)}
    layouts = (study_drawings(results, layout) for layout in (FILE, NARROW))
    figures = islice(zip(*layouts, strict=True), MOST_FIGURES)
    pictures = [Markup("").join(both(wide, narrow)) for (_, wide), (_, narrow) in figures]
    data["pictures"] = pictures[1:]
    overview = template(
        "study.html",
        title=study.title,
        question=study.question,
        loud=loud_notices(results.runs.values()).texts,
        sentences=[prose(text) for text in study_sentences(results)] if points and not seeds_of(results) else [],
        savings=[prose(text) for text in study_savings(results)],
        pictures=pictures[:1],
        others=len(pictures[1:]),
        rows=list(_rows(results, leads)),
        reference=FASTEST_REFERENCE.replace("the run's", "its point's"),
        missing=[prose(text) for text in not_passed(results)],
    )
    return skeleton(
        title=study.title,
        provenance=" ".join(origin for origin, _ in origins(results.runs.values())) if points else "",
        file="*/results.json",
        first_view=overview,
        data=data,
        points=[(point.name, point_text(point)) for point in points],
        home=home,
    )


def _by_stage(points: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The points' data with the views of one rung beside each other, since texts that are alike pack well when near."""
    rungs: dict[str, dict[str, str]] = {}
    for name, point in points.items():
        for stage, view in point.pop("rungs").items():
            rungs.setdefault(stage, {})[name] = view
    return {"points": points, "rungs": rungs}


def _rows(results: StudyResults, leads: dict[str, PointLead]) -> Iterator[dict[str, str]]:
    """A line of the table for each measured point."""
    for point in results.measured:
        rungs = [stage for stage in results.runs[point.name].stages if stage.group != "reference"]
        best = fastest(rungs)
        timed, lead = step_us(best), leads.get(point.name)
        yield {
            "address": quote(point.name, safe=""),
            "words": point_text(point),
            "rung": best.name if best is not None else numbers.MISSING,
            "time": numbers.microseconds(timed.median if timed else None),
            "lead": lead.text if lead is not None else numbers.MISSING,
            "over": lead.lead.reference.name if lead is not None else "",
        }
