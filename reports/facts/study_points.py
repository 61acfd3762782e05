"""A study's facts: every stage at every point, and the fastest rung and reference of each point."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import starmap
from pathlib import Path
from typing import Any

from ladder.records.run import Results, StageResult, load, results_in
from ladder.records.study import Point, Study, as_found, load_study
from reports.facts import numbers
from reports.facts.baselines import Lead, lead, overall_winner, references, rivals, winners
from reports.facts.grouped import grouped
from reports.facts.run_table import reason, table_order
from reports.facts.times import step_us


@dataclass(frozen=True)
class StudyResults:
    """A study with the results of its measured points."""

    study: Study
    runs: Mapping[str, Results]  # by name of the point

    @property
    def broken(self) -> bool:
        """Whether a stage failed a check or crashed at any point."""
        return any(stage.status in ("failed", "crashed") for run in self.runs.values() for stage in run.stages)

    @property
    def measured(self) -> list[Point]:
        """The points that have results, in the study's order."""
        return [point for point in self.study.points if point.name in self.runs]

    def stages(self) -> list[StageResult]:
        """Every stage once, from the first point that has it: the rungs in ladder order, then the references."""
        stages: dict[str, StageResult] = {}
        for run in self.runs.values():
            for stage in table_order(run):
                known = stages.setdefault(stage.name, stage)
                if known.device is None and stage.device is not None:
                    stages[stage.name] = stage  # this one ran, so it knows its device
        return sorted(stages.values(), key=lambda stage: stage.group == "reference")

    def at(self, point: Point, name: str) -> StageResult | None:
        """A stage at a point; None if the point has no results or was measured without that stage."""
        run = self.runs.get(point.name)
        return run.stage(name) if run else None


def load_results(folder: Path) -> StudyResults:
    """A study with its measured points; ResultsError for a file that cannot be read."""
    study = as_found(load_study(folder), folder)
    # A waiting point may already have a results file, from compiling ahead.
    files = {point.name: results_in(folder / point.name) for point in study.points if point.status != "waiting"}
    return StudyResults(study, {name: load(file) for name, file in files.items() if file.exists()})


def accuracy_text(results: StudyResults, stage: StageResult) -> str:
    """A stage's test accuracy, `92.41%`, in a study of what decides how well a network learns; else empty."""
    learns = {"learning_rate", "epochs"} & {*results.study.varied}
    return numbers.percent(stage.metrics.test_accuracy if stage.metrics else None) if learns else ""


def is_disturbed(stage: StageResult | None) -> bool:
    """Whether other work or falling clocks disturbed every process that gave the stage its time."""
    return step_us(stage) is not None and stage is not None and all(process.disturbed for process in stage.processes)


@dataclass(frozen=True)
class PointLead:
    """The lead of a rung at a point of a study."""

    point: Point
    lead: Lead
    # References without a time at this point that are faster than the lead's reference at another point.
    missing: list[str]

    @property
    def text(self) -> str:
        """The lead with its spread: `8.58x (8.55-8.60)`; `at most` if a reference is missing that may be faster."""
        at_most = "at most " if self.missing else ""
        return f"{at_most}{self.lead.text}"

    @property
    def in_full(self) -> str:
        """The same with the missing references: `at most 8.58x (8.55-8.60) (jax-scan)`."""
        return self.text + (f" ({numbers.listing(self.missing)})" if self.missing else "")


def point_lead(results: StudyResults, point: Point, stage: StageResult) -> PointLead | None:
    """A rung's lead at a point; None for a reference, or without a reference that counts.

    There is none either if a reference without a time at the point is faster than the lead's wherever both have a
    time: the lead would then be over the second best.
    """
    run = results.runs[point.name]
    best_lead = lead(stage, run) if stage.group != "reference" else None
    if best_lead is None:
        return None
    timed = rivals(stage, references(run))
    missing = []
    for other in results.stages():
        if other.group != "reference" or step_us(results.at(point, other.name)) is not None:
            continue
        faster = [_is_faster_elsewhere(results, other, row, stage) for row in timed]
        if any(known and not any(known) for known in faster):
            continue  # a reference with a time here always beats it
        over = _is_faster_elsewhere(results, other, best_lead.reference, stage)
        if over and all(over):
            return None
        if any(over):
            missing.append(other.name)
    return PointLead(point, best_lead, missing)


def _is_faster_elsewhere(
    results: StudyResults, other: StageResult, reference: StageResult, rung: StageResult
) -> list[bool]:
    """Whether a reference that counts for a rung is faster than another, for each point where both have a time."""
    faster = []
    for where in results.measured:
        there, base = results.at(where, other.name), results.at(where, reference.name)
        own_us, base_us = step_us(there), step_us(base)
        if there is not None and own_us and base_us and rivals(rung, [there]) and there.device == rung.device:
            faster.append(own_us.median < base_us.median)
    return faster


def point_winners(results: StudyResults) -> Iterator[PointLead]:
    """The lead of the fastest rung, for every point and class of precision that has one."""
    for point in results.measured:
        for winner in winners(results.runs[point.name]):
            if (winner_lead := point_lead(results, point, winner.stage)) is not None:
                yield winner_lead


def overall_winners(results: StudyResults) -> Iterator[PointLead]:
    """The lead of the fastest rung of any precision, for every point that has one."""
    for point in results.measured:
        winner = overall_winner(results.runs[point.name])
        if winner is not None and (winner_lead := point_lead(results, point, winner.stage)) is not None:
            yield winner_lead


def setting(key: str) -> str:
    """A setting's name in words: `batch size`."""
    return key.replace("_", " ")


def value_text(value: Any) -> str:
    """A setting's value: `64`, `128-128-128`, and `none` for no layers."""
    return ("-".join(map(str, value)) or "none") if isinstance(value, list) else str(value)


def point_text(point: Point) -> str:
    """A point in words: `hidden 64, seed 1`; `the run` if nothing is varied."""
    return ", ".join(starmap(setting_text, point.values.items())) or "the run"


def setting_text(key: str, value: Any) -> str:
    """A setting with its value: `hidden 64`, `no validation`, `no hidden layer`."""
    if key == "hidden" and value == []:
        return "no hidden layer"
    if key == "validate_every" and value in (0, 1):
        return "with validation" if value else "no validation"
    return f"{setting(key)} {value_text(value)}"


def further_differences(study: Study) -> list[str]:
    """`at depth 3 and 1: batch size 32`: points that differ from the first in more than is varied, stages left out."""
    left_out = (*study.varied, "stages")
    keys = dict.fromkeys(key for point in study.points for key in point.settings if key not in left_out)

    def more(point: Point) -> str:
        own, first = ({**dict.fromkeys(keys, "by default"), **one.settings} for one in (point, study.points[0]))
        return ", ".join(f"{setting(key)} {value_text(own[key])}" for key in keys if own[key] != first[key])

    by_difference = grouped((more(point), point) for point in study.points)
    return [f"at {_named(study, points)}: {text}" for text, points in by_difference.items() if text]


def _named(study: Study, points: Sequence[Point]) -> str:
    """Points in words, by one setting if its values tell them from all others."""
    for key in study.varied:
        values = dict.fromkeys(value_text(point.values[key]) for point in points)
        if sum(value_text(point.values[key]) in values for point in study.points) == len(points):
            return f"{setting(key)} {numbers.listing(values)}"
    return numbers.listing(map(point_text, points))


def not_passed(results: StudyResults) -> list[str]:
    """A line for each reason for a missing time, with its stages and points, and for each point without results."""
    missing = [
        ((stage.status, reason(stage)) if stage.status != "passed" else ("has no curves", stage.no_curve), stage, point)
        for point in results.measured
        for stage in results.runs[point.name].stages
        if stage.status != "passed" or stage.no_curve
    ]
    points_by_reason = grouped((why, (stage.name, point_text(point))) for why, stage, point in missing)
    everywhere = len(results.measured)
    lines = []
    for (status, why), named in points_by_reason.items():
        for points, names in grouped((tuple(points), name) for name, points in grouped(named).items()).items():
            where = "" if len(points) == everywhere else f" at {numbers.listing(points)}"
            lines.append(f"{numbers.listing(names)} {status}{where}: {why}")
    for point in results.study.points:
        if point.status == "skipped":
            lines.append(f"{point_text(point)} skipped: {point.reason}")
        elif point.status != "measured":
            why = f" ({point.reason})" if point.reason else ""
            lines.append(f"{point_text(point)}: not complete yet{why}; continue with study --resume")
    return lines
