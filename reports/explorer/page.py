"""The page of a run: its skeleton with the picture, and everything else packed for the script to show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from markupsafe import Markup

from ladder.records.exactness import CLASSES, precision_class
from ladder.records.profile import Profile
from ladder.records.run import Results, StageResult
from ladder.records.sources import Sources
from reports.explorer.code import lines, shown_code
from reports.explorer.floor_page import floor_view
from reports.explorer.rung_page import LEAST_CHANGE, part_bars, rung_html
from reports.explorer.trust_page import trust_view
from reports.facts.provenance import COMMIT_DIGITS, gpu_name, provenance
from reports.facts.run_table import ALL_DISTURBED, MARKS, heading, name_of, table_order, title_of
from reports.facts.stage_facts import all_stage_facts
from reports.facts.times import step_us
from reports.facts.warnings import notices
from reports.figures.ladder import dots, drawn, headline
from reports.figures.style import OPERATION_COLOURS
from reports.figures.timeline_figure import row_name
from reports.screens.blocks import Heading
from reports.screens.details import details, glossary
from reports.screens.run import untimed
from reports.writers.html import document, drawings, packed, template
from reports.writers.page import in_html

MOST_LINES = 3  # stages without a time that are named beside their reason; more wait for a click


def render(results: Results, sources: Sources | None = None, example: str = "", home: str = "") -> str:
    """The whole page as HTML text, the same bytes for the same run.

    `sources` is the code that the run measured. `example` is the folder of a recorded run on a GPU, to name on the page
    of one without. `home` is the way to the folder of a site's front page, for a page that belongs to a site.
    """
    data = data_of(results, sources, example)
    return skeleton(
        title=f"{_headline(results)} - {heading(results)}",
        provenance=provenance(results),
        file="results.json",
        first_view=data.pop("ladder"),
        rungs=data.pop("list"),
        data=data,
        home=home,
    )


def skeleton(data: Mapping[str, Any], *, first_view: str, rungs: str = "", **given: Any) -> str:
    """A page that shows its first view at once, and the views in `data` when its script has unpacked them.

    Given are `title`, `provenance` and the `file` of the record; of a study also `points`, the name of each with its
    words. `home` is the way to a site's front page.
    """
    given |= {"first_view": Markup(first_view), "rungs": Markup(rungs)}
    given["data"] = packed({**data, "terms": in_html(glossary())})
    return document("page.html", ("explorer.css",), ("theme.js", "explorer.js"), **{"points": (), **given})


def data_of(
    results: Results, sources: Sources | None = None, example: str = "", *, is_brief: bool = False
) -> dict[str, Any]:
    """Everything that the script shows of a run; a brief one has neither code nor timelines."""
    stages = table_order(results)
    codes = {stage.name: shown_code(stage, results, sources) for stage in stages} if sources is not None else {}
    shown = dict.fromkeys(path for code in codes.values() if code is not None for path in code.files)
    origin = "" if is_brief else _origin(results, sources)
    data = {
        "least": LEAST_CHANGE,
        "run": _run_data(results),
        "ladder": _ladder(results, example, is_brief=is_brief),
        "list": template(
            "rungs.html", stages=[(stage.name, name_of(stage), title_of(stage), stage.group) for stage in stages]
        ),
        "rungs": {
            stage.name: rung_html(stage, results, codes.get(stage.name), origin, is_brief=is_brief) for stage in stages
        },
        "views": {
            "floor": floor_view(results),
            "trust": trust_view(results),
            "details": in_html([Heading("Details", 1), *details(results)]),
        },
    }
    if not is_brief:
        data |= {"bars": part_bars(results), "colours": OPERATION_COLOURS, "spans": spans(results)}
        files = sources.files if sources is not None else {}
        data |= {"files": {path: "\n".join(lines(path, files[path])) for path in shown}}
    return data


def _ladder(results: Results, example: str, *, is_brief: bool) -> str:
    """The view of the picture as HTML; a brief one has the references in its list alone."""
    every, told, stages = all_stage_facts(results), notices(results), results.stages
    timed = bool(dots(results, is_page=True))
    passed = {stage.name for stage in stages if step_us(stage)}
    return template(
        "ladder.html",
        heading=heading(results),
        loud=[notice.text for notice in told if notice.loud],
        notices=[notice.text for notice in told],
        marks=MARKS if any(row.disturbed for row in every) else "",
        headline=_headline(results),
        pictures=drawings(lambda layout: drawn(results, replace(layout, has_references=not is_brief))) if timed else [],
        precisions=_precisions(results),
        untimed=[
            (f"{status}: {why}", [(stage.name, name_of(stage)) for stage in members])
            for (status, why), members in untimed(results).items()
        ],
        most_lines=MOST_LINES,
        example=example,
        guessable=any(stage.group != "reference" and step_us(stage) and stage.below in passed for stage in stages),
        references=[row for row in every if row.is_reference and row.step_us is not None],
    )


def _headline(results: Results) -> str:
    """The first and the fastest time, with the device unless it is a GPU, and whether all of either was disturbed."""
    shown = dots(results, is_page=True)
    if not shown:
        return "No stage was timed in this run"
    ends = shown[0], min(shown, key=lambda one: one.step_us or 0.0)
    on_gpu = any(one.stage.device == "gpu" for one in shown)
    where = f", on {gpu_name(results) or 'a GPU'}" if on_gpu else ", on the CPU"
    disturbed = any(one.disturbed == ALL_DISTURBED for one in ends)
    return f"{headline(shown)}{where}{', disturbed by other work' * disturbed}"


def _origin(results: Results, sources: Sources | None) -> str:
    """Where the code of this run is from, as a sentence."""
    code = results.environment.get("code") or {}
    commit = str(code.get("git_commit") or "")[:COMMIT_DIGITS]
    if sources is None:
        missing = f"this checkout has no commit {commit}" if commit else "it recorded no commit"
        return f"This run kept no code, and {missing}."
    if not sources.commit:
        return "The code as the run kept it."
    changed = ", without the changes that the run had" if code.get("uncommitted_changes") else ""
    return f"Filled in from the recorded commit {sources.commit[:COMMIT_DIGITS]}{changed}."


def _precisions(results: Results) -> list[str]:
    """The classes of precision of the timed rungs, from the most exact one."""
    classes = {precision_class(stage) for stage in results.stages if stage.group != "reference" and step_us(stage)}
    return [name for name in dict.fromkeys(CLASSES.values()) if name in classes]


DIGITS = 6  # significant digits; times are known to three or four


def spans(results: Results) -> dict[str, list[list[str | float]]]:
    """The bars of every timeline, by stage."""
    return {stage.name: _spans(stage.profile) for stage in results.stages if stage.profile is not None}


def _spans(profile: Profile) -> list[list[str | float]]:
    """The bars of a timeline: row, name, kind, start and duration in us as the profiler saw them."""
    return [
        [row_name(span.row, span.thread), span.name, span.kind, round(span.start_us, 3), round(span.duration_us, 3)]
        for span in profile.timeline
    ]


def _run_data(results: Results) -> dict[str, Any]:
    """The run as the script reads it."""
    stages = [_stage_data(stage) for stage in table_order(results)]
    return {"heading": heading(results), "created": results.created, "stages": stages}


def _stage_data(stage: StageResult) -> dict[str, Any]:
    timed = step_us(stage)
    return {
        "name": stage.name,
        "shown": name_of(stage),
        "from": stage.below,
        "reference": stage.group == "reference",
        "us": float(f"{timed.median:.{DIGITS}g}") if timed else None,
    }
