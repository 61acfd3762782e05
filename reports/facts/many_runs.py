"""The same stages in several runs or studies, mostly on several machines, and the rungs whose order differs there."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from itertools import combinations

import msgspec
from msgspec.structs import replace

from ladder.records.run import Results, StageResult
from reports.facts import numbers
from reports.facts.baselines import fastest
from reports.facts.provenance import gpu_name
from reports.facts.run_differences import cannot_compare, is_same_run
from reports.facts.run_table import table_order
from reports.facts.study_points import StudyResults, point_text
from reports.facts.times import step_times_us
from reports.facts.two_runs import (
    CannotCompareError,
    Verdict,
    in_words,
    interval_between,
    same_cpu,
    side_of,
    verdict_between,
    verdict_of,
)


class MachineCell(msgspec.Struct, frozen=True):
    """A stage in one run; `ratio` is its time by that of the first run, None if either has no time."""

    step_us: float | None = None
    ratio: float | None = None
    verdict: Verdict | None = None
    low: float | None = None  # ends of the ratio's interval
    high: float | None = None

    @property
    def words(self) -> str:
        """The verdict, with the share within which a stage is the same; empty without one."""
        return in_words(self.verdict, self.low, self.high)


class MachineRow(msgspec.Struct, frozen=True):
    """A stage in all runs."""

    name: str
    cells: list[MachineCell]


class OrderChange(msgspec.Struct, frozen=True):
    """Two rungs of which the higher one is faster in some runs and slower in others."""

    higher: str
    lower: str
    faster_in: list[str]
    slower_in: list[str]


class Machines(msgspec.Struct, frozen=True):
    """Several runs, stage by stage."""

    runs: list[str]  # as the user named them; the others are compared with the first
    machines: list[str]
    rows: list[MachineRow]
    order_changes: list[OrderChange]
    within_noise: int  # pairs of rungs whose medians change order, within the noise


def compare_machines(runs: Sequence[tuple[str, Results]]) -> Machines:
    """A row for every stage of any run; raises CannotCompareError."""
    first = runs[0]
    for name, run in runs[1:]:
        if obstacle := cannot_compare(first[1], run):
            raise CannotCompareError(f"{first[0]} and {name}: {obstacle}")
    stages = [{stage.name: stage for stage in table_order(run)} for _, run in runs]
    groups = {name: stage.group for by_name in stages for name, stage in by_name.items()}
    names = sorted(groups, key=lambda name: groups[name] == "reference")
    rows = [MachineRow(name, _cells([of.get(name) for of in stages], [run for _, run in runs])) for name in names]
    if not any(cell.step_us for row in rows for cell in row.cells):
        raise CannotCompareError(f"{', '.join(name for name, _ in runs)}: no stage was timed; name other runs")
    changes, within_noise = _order_changes(runs)
    machines = [gpu_name(run) or "no GPU" for _, run in runs]
    return Machines([name for name, _ in runs], machines, rows, changes, within_noise)


def _cells(stages: Sequence[StageResult | None], runs: Sequence[Results]) -> list[MachineCell]:
    cells, base = list[MachineCell](), stages[0]
    for number, (stage, run) in enumerate(zip(stages, runs, strict=True)):
        times = step_times_us(stage)
        us = statistics.median(times) if times else None
        if stage is None or base is None or not times or not step_times_us(base) or not number:
            cells.append(MachineCell(us))
        elif is_same_run(runs[0], run):
            cells.append(MachineCell(us, 1.0, "SAME"))
        else:
            interval, verdict, _ = verdict_between(base, stage, same_cpu=same_cpu(runs[0], run))
            cells.append(MachineCell(us, interval.value, verdict, interval.low, interval.high))
    return cells


def _order_changes(runs: Sequence[tuple[str, Results]]) -> tuple[list[OrderChange], int]:
    """The pairs of rungs that certainly change order, and the number of pairs whose medians alone do."""
    rungs = list(dict.fromkeys(s.name for _, run in runs for s in run.stages if s.group != "reference"))
    sides = {(name, stage.name): side_of(stage, with_paces=False) for name, run in runs for stage in run.stages}
    changes, within_noise = [], 0
    for lower, higher in combinations(rungs, 2):
        faster: list[str] = []
        slower: list[str] = []
        signs = set()
        for name, _ in runs:
            base, own = sides.get((name, lower)), sides.get((name, higher))
            if base is None or own is None or not base.times or not own.times:
                continue
            interval = interval_between(base, own)
            signs.add(interval.value > 1)
            if (verdict := verdict_of(interval)) in ("FASTER", "SLOWER"):
                (faster if verdict == "FASTER" else slower).append(name)
        if faster and slower:
            changes.append(OrderChange(higher, lower, faster, slower))
        elif len(signs) > 1:
            within_noise += 1
    return changes, within_noise


class PointMachines(msgspec.Struct, frozen=True):
    """A point in all studies, with the fastest rung in each."""

    point: str
    fastest: list[str]
    machines: Machines


class Studies(msgspec.Struct, frozen=True):
    """Several studies, point by point."""

    studies: list[str]  # as the user named them; the others are compared with the first
    machines: list[str]
    points: list[PointMachines]
    left_out: list[str]  # one sentence for each point that not all studies have timed


def compare_studies(studies: Sequence[tuple[str, StudyResults]]) -> Studies:
    """Every point that all studies have timed; raises CannotCompareError."""
    labels = [label for label, _ in studies]
    points, left_out = list[PointMachines](), list[str]()
    for name, title in {point.name: point_text(point) for _, study in studies for point in study.measured}.items():
        runs = [(label, study.runs[name]) for label, study in studies if name in study.runs]
        runs = [(label, run) for label, run in runs if fastest(run.stages) is not None]
        if len(runs) == len(studies):
            points.append(_point(title, runs))
        elif runs:
            lacking = [label for label in labels if label not in dict(runs)]
            left_out.append(f"{title}: not timed in {numbers.listing(lacking)}.")
    if not points:
        raise CannotCompareError(f"{numbers.brief(labels)}: have no timed point in common; name studies of one file")
    return Studies(labels, [_machine(study) for _, study in studies], points, left_out)


def _point(title: str, runs: Sequence[tuple[str, Results]]) -> PointMachines:
    """A point in all studies, without the stages that none of them has timed."""
    try:
        machines = compare_machines(runs)
    except CannotCompareError as error:
        raise CannotCompareError(f"{title}: {error}") from error
    rows = [row for row in machines.rows if any(cell.step_us for cell in row.cells)]
    return PointMachines(title, [_fastest_rung(run) for _, run in runs], replace(machines, rows=rows))


def _fastest_rung(run: Results) -> str:
    rung = fastest(stage for stage in run.stages if stage.group != "reference")
    return rung.name if rung else numbers.MISSING


def _machine(study: StudyResults) -> str:
    """The GPU of a study, or all of them where its points are of several."""
    return numbers.listing(list(dict.fromkeys(gpu_name(run) or "no GPU" for run in study.runs.values())))
