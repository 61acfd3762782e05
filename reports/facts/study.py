"""A study's facts: every stage at every point, and the fastest rung and reference of each point."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ladder.records.run import Results, Spread, StageResult, load
from ladder.records.study import Point, Study, as_found, load_study
from reports.facts import numbers
from reports.facts.baselines import Winner, fastest_peer, precision_class, ratio, references, winners
from reports.facts.summary import table_order


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
        found: dict[str, StageResult] = {}
        for run in self.runs.values():
            for stage in table_order(run):
                known = found.setdefault(stage.name, stage)
                if known.device is None and stage.device is not None:
                    found[stage.name] = stage  # this one ran, so it knows its device
        return sorted(found.values(), key=lambda stage: stage.group == "reference")

    def at(self, point: Point, name: str) -> StageResult | None:
        """A stage at a point; None if the point has no results or was measured without that stage."""
        run = self.runs.get(point.name)
        return next((stage for stage in run.stages if stage.name == name), None) if run else None


def load_results(folder: Path) -> StudyResults:
    """A study with its measured points; ResultsError for a file that cannot be read."""
    study = as_found(load_study(folder), folder)
    # A waiting point may already have a results file, from compiling ahead.
    paths = {point.name: folder / point.name for point in study.points if point.status != "waiting"}
    return StudyResults(study, {name: load(path) for name, path in paths.items() if (path / "results.json").exists()})


def step_us(stage: StageResult | None) -> Spread | None:
    """Microseconds a step over all runs; None unless the stage passed."""
    if stage is None or stage.status != "passed" or stage.timing is None:
        return None
    steps = stage.timing.steps_per_epoch / 1e6
    epoch = stage.timing.epoch_s
    return Spread(epoch.median / steps, epoch.min / steps, epoch.max / steps)


def spread_text(spread: Spread | None) -> str:
    """A spread of microseconds: `12.3 (12.1-12.9)`."""
    if spread is None:
        return numbers.MISSING
    ends = "-".join(numbers.aligned(end, spread.median) for end in (spread.min, spread.max))
    return f"{numbers.microseconds(spread.median)} ({ends})"


def speedup(run: Results, stage: StageResult) -> float | None:
    """How many times as fast as the fastest reference of its class a rung is; None without one, and for references."""
    if stage.group == "reference":
        return None
    return ratio(fastest_peer(stage, references(run)), stage)


def lead(run: Results, reference: StageResult | None) -> float | None:
    """How many times as fast as a reference the fastest rung of its class is; None if either has no time."""
    if reference is None or reference.group != "reference":
        return None
    rung = fastest_peer(reference, [stage for stage in run.stages if stage.group != "reference"])
    return ratio(reference, rung) if rung else None


def point_winners(results: StudyResults) -> Iterator[tuple[Point, Winner]]:
    """The fastest rung and the fastest reference, for every point and class of precision that has both.

    A point is left out if its only timed reference is weak: another one beats it wherever both have a time.
    """
    for point in results.measured:
        for winner in winners(results.runs[point.name]):
            if not is_weak(results, point, winner.reference):
                yield point, winner


def is_weak(results: StudyResults, point: Point, reference: StageResult) -> bool:
    """Whether another reference, which has no time at this point, is faster wherever both have one."""

    def time(where: Point, name: str) -> float | None:
        spread = step_us(results.at(where, name))
        return spread.median if spread else None

    for other in results.stages():
        alike = precision_class(other) == precision_class(reference) and other.device == reference.device
        if other.group != "reference" or not alike or time(point, other.name) is not None:
            continue
        both = [(time(where, reference.name), time(where, other.name)) for where in results.measured]
        pairs = [(ours, theirs) for ours, theirs in both if ours is not None and theirs is not None]
        if pairs and all(theirs < ours for ours, theirs in pairs):
            return True
    return False


def setting(key: str) -> str:
    """A setting's name in words: `batch size`."""
    return key.replace("_", " ")


def value_text(value: Any) -> str:
    """A setting's value: `64`, `128-128-128`, and `none` for no layers."""
    return ("-".join(map(str, value)) or "none") if isinstance(value, list) else str(value)


def point_text(point: Point) -> str:
    """A point in words: `hidden 64, seed 1`; `the run` if nothing is varied."""
    return ", ".join(f"{setting(key)} {value_text(value)}" for key, value in point.values.items()) or "the run"


def not_passed(results: StudyResults) -> list[str]:
    """A line for each reason for a missing time, with its stages and points, and for each point without results."""
    points_by_reason: dict[tuple[str, str], dict[str, list[str]]] = {}
    for point in results.measured:
        for stage in results.runs[point.name].stages:
            if stage.status != "passed":
                reason = " ".join((stage.reason or "no reason was recorded").split())
                points_by_reason.setdefault((stage.status, reason), {}).setdefault(stage.name, []).append(
                    point_text(point)
                )
            elif stage.no_curve:
                points_of = points_by_reason.setdefault(("has no curves", stage.no_curve), {})
                points_of.setdefault(stage.name, []).append(point_text(point))
    everywhere = len(results.measured)
    lines = []
    for (status, reason), points_of in points_by_reason.items():
        for points, names in _grouped((tuple(points), name) for name, points in points_of.items()):
            where = "" if len(points) == everywhere else f" at {numbers.listing(points)}"
            lines.append(f"{numbers.listing(names)} {status}{where}: {reason}")
    for point in results.study.points:
        if point.status == "skipped":
            lines.append(f"{point_text(point)} skipped: {point.reason}")
        elif point.status != "measured":
            lines.append(f"{point_text(point)}: not complete yet; continue with study --resume")
    return lines


def _grouped(pairs: Iterable[tuple[tuple[str, ...], str]]) -> Iterable[tuple[tuple[str, ...], list[str]]]:
    found: dict[tuple[str, ...], list[str]] = {}
    for key, name in pairs:
        found.setdefault(key, []).append(name)
    return found.items()
