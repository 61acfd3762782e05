"""Every network and batch that was measured, and the rung that wins there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ladder.records.run import Results, StageResult
from ladder.records.study import Point
from reports.facts.baselines import fastest, winners
from reports.facts.grouped import grouped
from reports.facts.study_points import PointLead, StudyResults, point_winners

ENDS = (784, 10)  # inputs and classes: a network with others is another question


@dataclass(frozen=True)
class MeasuredPoint:
    """A run of a network whose hidden layers are equally wide, with the winning rung."""

    layers: int  # hidden layers
    width: int  # units of each; 0 without a hidden layer
    batch: int
    results: Results
    study: str  # its title; empty for a run of its own
    point: str  # its name in the study; empty for a run of its own
    address: str  # of the page of its run or study
    best: StageResult
    leads: tuple[PointLead, ...]  # of the fastest rung of each class of precision, where one can be stated

    @property
    def lead(self) -> PointLead | None:
        """The lead of the winning rung; None if a reference that is faster elsewhere has no time here."""
        return next((winner for winner in self.leads if winner.lead.stage is self.best), None)


def measured_points(runs: Mapping[str, Results], studies: Mapping[str, StudyResults]) -> list[MeasuredPoint]:
    """The points of recorded runs and studies, by the addresses of their pages.

    Where one network was measured twice, the surest comes first: with a lead, then a run of its own, which has every
    rung, then of more processes, then the newest.
    A study without references asks another question, and so does one of seeds: their points are left out.
    """
    measured = []
    for address, run in runs.items():
        leads = tuple(PointLead(Point("", {}, {}, "measured"), lead, []) for lead in winners(run))
        measured.append(_point(run, leads, "", "", address))
    for address, results in studies.items():
        leads_of = grouped((lead.point.name, lead) for lead in point_winners(results))
        for point in results.measured if leads_of and "seed" not in results.study.varied else []:
            leads = tuple(leads_of.get(point.name, []))
            measured.append(_point(results.runs[point.name], leads, results.study.title, point.name, address))
    known = [point for point in measured if point is not None]
    known.sort(key=lambda point: point.results.created, reverse=True)
    return sorted(known, key=lambda point: (point.layers, point.width, point.batch, _doubt(point)))


def _point(run: Results, leads: tuple[PointLead, ...], study: str, name: str, address: str) -> MeasuredPoint | None:
    """The point of a run; None for another kind of network, for several, or without a rung that was timed on a GPU."""
    problem = run.problem
    best = fastest(stage for stage in run.stages if stage.group != "reference")
    if (problem.inputs, problem.classes) != ENDS or len(set(problem.hidden)) > 1 or problem.networks > 1:
        return None
    if best is None or best.device != "gpu":
        return None
    width = problem.hidden[0] if problem.hidden else 0
    return MeasuredPoint(len(problem.hidden), width, problem.batch_size, run, study, name, address, best, leads)


def _doubt(point: MeasuredPoint) -> tuple[bool, bool, bool, bool, int]:
    lead, is_validated = point.lead, point.results.problem.validate_every > 0
    return is_validated, lead is None, bool(lead and lead.missing), bool(point.study), -len(point.best.processes)
