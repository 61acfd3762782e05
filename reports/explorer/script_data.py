"""The numbers that the page's script works with: times for guesses and for the comparison of two runs."""

from __future__ import annotations

from typing import Any

from ladder.records.exactness import precision_class
from ladder.records.profile import Profile
from ladder.records.run import Results, StageResult
from reports.facts.provenance import machine_name, provenance
from reports.facts.run_table import heading, name_of, reason, table_order
from reports.facts.times import step_us
from reports.facts.two_runs import CannotCompareError, Comparison, compare
from reports.figures.timeline_figure import row_name

DIGITS = 6  # significant digits; times are known to three or four
LEAST_CHANGE = 1.1  # a rung that changed its parent's time by less is judged by this factor when a guess is scored


def script_data(results: Results, recorded: Results | None) -> dict[str, Any]:
    """The run, and the recorded run of the same problem or None, as the script reads them.

    With them the verdicts of `compare` on the two, and the least change that a guess is scored by.
    """
    compared = comparison(results, recorded)
    return {
        "least": LEAST_CHANGE,
        "verdicts": {stage.name: stage.words for stage in compared.stages if stage.verdict} if compared else {},
        "run": _run_data(results),
        "recorded": _run_data(recorded) if recorded is not None else None,
    }


def comparison(results: Results, recorded: Results | None) -> Comparison | None:
    """The run against the recorded one; None if they share no timed stage."""
    try:
        return compare(recorded, results, ("the recorded run", "this run")) if recorded is not None else None
    except CannotCompareError:
        return None


def compared_problem(results: Results) -> list[str | int | None]:
    """What two runs must share for their times to compare."""
    problem = results.problem
    several = [problem.networks] if problem.networks > 1 else []
    return [problem.network, problem.batch_size, problem.dataset, problem.max_steps, problem.validate_every, *several]


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
    return {
        "heading": heading(results),
        "origin": provenance(results),
        "machine": machine_name(results),
        "created": results.created,
        "problem": compared_problem(results),
        "stages": [_stage_data(stage) for stage in table_order(results)],
    }


def _stage_data(stage: StageResult) -> dict[str, Any]:
    timed = step_us(stage)
    return {
        "name": stage.name,
        "shown": name_of(stage),
        "from": stage.below,
        "reference": stage.group == "reference",
        "precision": precision_class(stage),
        "status": stage.status if stage.status == "passed" else f"{stage.status}: {reason(stage)}",
        "us": _rounded(timed.median) if timed else None,
    }


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")
