"""The same study on several machines, mostly several kinds of GPU: its points side by side."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from ladder.records.run import Results
from reports.facts import numbers
from reports.facts.baselines import fastest
from reports.facts.many_runs import Machines, compare_machines
from reports.facts.provenance import gpu_name
from reports.facts.study_points import StudyResults, point_text
from reports.facts.two_runs import CannotCompareError


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
