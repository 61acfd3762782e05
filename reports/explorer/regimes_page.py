"""The regimes: which rung wins at a reader's width and batch, from the nearest point that was measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any
from urllib.parse import quote

from ladder.records.exactness import precision_class
from ladder.records.run import Results, StageResult
from reports.facts import numbers
from reports.facts.launch_regimes import regime
from reports.facts.measured_points import MeasuredPoint, measured_points
from reports.facts.provenance import gpu_name, recorded
from reports.facts.ratios import Ratio
from reports.facts.run_table import MARKS, disturbed_mark
from reports.facts.study_points import PointLead, StudyResults
from reports.facts.times import step_us
from reports.figures import regimes_map
from reports.writers.html import drawing, template

START = {"layers": 1, "width": 256, "batch": 128}  # what the page shows first
SETTINGS = {"layers": "Hidden layers", "width": "Units in each", "batch": "Batch"}


def render_regimes(runs: Mapping[str, Results], studies: Mapping[str, StudyResults]) -> str:
    """The regimes as HTML without a page around it, of runs and studies by the addresses of their pages."""
    points = measured_points(runs, studies)
    names = sorted({gpu_name(point.results) for point in points})
    fields = [
        {"name": name, "words": words, "values": sorted({getattr(point, name) for point in points})}
        for name, words in SETTINGS.items()
    ]
    return template(
        "regimes.html",
        fields=fields,
        start=START,
        gpus=[_gpu(name, [point for point in points if gpu_name(point.results) == name]) for name in names],
        marks=MARKS,
    )


def _gpu(name: str, points: Sequence[MeasuredPoint]) -> dict[str, Any]:
    """What was measured on one GPU: the picture, the answers and the list."""
    answers = [list(alike) for _, alike in groupby(points, key=lambda point: (point.layers, point.width, point.batch))]
    best = [alike[0] for alike in answers]
    return {
        "name": name,
        "pictures": [
            drawing(regimes_map.drawn(best), "wide"),
            drawing(regimes_map.drawn(best, is_narrow=True), "narrow"),
        ],
        "answers": [_answer(alike) for alike in answers],
        "groups": _groups(best),
    }


def _answer(alike: Sequence[MeasuredPoint]) -> dict[str, Any]:
    """The answer for a network and batch, from its surest point; the others repeat it."""
    point, *again = alike
    lead, second = point.lead, point.second
    return _source(point) | {
        "point": point,
        "network": point.results.problem.network,
        "wins": lead is None or lead.lead.ratio.times >= 1,
        "best_address": rung_address(point, point.best.name),
        "second": _second(*second) if second is not None else None,
        "classes": [
            {
                "name": name,
                "rung": rung.name,
                "address": rung_address(point, rung.name),
                "time": _time(rung),
                "lead": _lead(next((winner for winner in point.leads if winner.lead.stage is rung), None)),
            }
            for name, rung in point.fastest_by_precision.items()
        ],
        "stages": list(_bars(point)),
        "counts": f"{numbers.count(len(point.rungs), 'rung')} and {numbers.count(len(point.rivals), 'reference')}",
        "again": [_source(other) for other in again],
        "is_marked": any(disturbed_mark(stage) for point in alike for stage in (*point.rungs, *point.rivals)),
    }


def rung_address(point: MeasuredPoint, name: str) -> str:
    """The place of a rung on the page of the point's run or study, with its number rather than a guess."""
    within = f"{quote(point.point, safe='')}:" if point.study else ""
    return f"{point.address}#{within}{quote(name, safe='')}&all"


def _second(rung: StageResult, ratio: Ratio) -> dict[str, Any]:
    return {"name": rung.name, "time": _time(rung), "text": ratio.text, "is_noise": ratio.is_noise}


def _source(point: MeasuredPoint) -> dict[str, Any]:
    """What a point says in a line, and where it comes from."""
    processes = max(len(stage.processes) for stage in point.rungs)
    return {
        "rung": point.best.name,
        "time": _time(point.best),
        "lead": _lead(point.lead),
        "kind": "Study:" if point.study else "Recorded run:",
        "title": point.study or point.results.problem.network,
        "address": f"{point.address}#{quote(point.point, safe='')}:/" if point.study else point.address,
        "processes": "1 process" if processes == 1 else f"{processes} processes",
        "origin": recorded(point.results),
        "is_validated": point.results.problem.validate_every > 0,
    }


def _lead(lead: PointLead | None) -> dict[str, Any] | None:
    if lead is None:
        return None
    return {"text": lead.text, "over": lead.lead.reference.name, "missing": lead.missing}


def _time(stage: StageResult) -> str:
    timed = step_us(stage)
    return numbers.microseconds(timed.median if timed else None) + disturbed_mark(stage)


def _bars(point: MeasuredPoint) -> Iterator[dict[str, Any]]:
    """Every timed stage, rungs and references together, with its speed as a share of the fastest one's."""
    timed = [(step.median, stage) for stage in (*point.rungs, *point.rivals) if (step := step_us(stage)) is not None]
    fastest_us = min(us for us, _ in timed)
    for us, stage in sorted(timed, key=lambda pair: pair[0]):
        yield {
            "name": stage.name,
            "address": rung_address(point, stage.name),
            "precision": precision_class(stage),
            "is_reference": stage.group == "reference",
            "time": _time(stage),
            "share": round(100 * fastest_us / us, 1),
        }


def _groups(best: Sequence[MeasuredPoint]) -> list[dict[str, Any]]:
    """The measured networks and batches, each once, by the number of hidden layers."""
    groups = []
    for layers, members in groupby(best, key=lambda point: point.layers):
        words = numbers.count(layers, "hidden layer") if layers else "No hidden layer"
        groups.append({"words": words, "points": [_chip(point) for point in members]})
    return groups


def _chip(point: MeasuredPoint) -> dict[str, Any]:
    return {
        "point": point,
        "words": f"{point.width}, batch {point.batch}" if point.layers else f"batch {point.batch}",
        "regime": regime(point.best).replace(" ", "-"),
        "lead": point.lead.text.split(" (")[0] if point.lead is not None else "",
    }
