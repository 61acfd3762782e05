"""The figures of a run as SVG: the list of them, and the fall of the loss."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import ParamSpec

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ladder.records.run import LossPoint, OracleRecord, ProblemRecord, Results
from reports.facts.ablations import FIGURES, ablation
from reports.facts.profiles import timeline_name
from reports.facts.summary import name_of, rows, table_order
from reports.facts.time_breakdown import chain
from reports.figures.ablation_figures import ablation_figure
from reports.figures.curves import curves, has_curves
from reports.figures.ladder import ladder
from reports.figures.style import (
    BACKGROUND,
    NEAREST,
    ORACLE,
    PALETTE,
    STYLE,
    WIDTH,
    svg,
    tidy,
    title,
)
from reports.figures.timeline import stage_timeline, timelines, with_timeline
from reports.figures.waterfall import waterfall

MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")

P = ParamSpec("P")
Curve = tuple[str, Sequence[LossPoint]]


def figures(results: Results) -> dict[str, str]:
    """Every figure that this run has numbers for, as SVG text by file name; empty if no stage passed."""
    return {name: draw() for name, draw in drawings(results).items()}


def drawings(results: Results) -> dict[str, Callable[[], str]]:
    """The function that draws each figure, by file name."""
    found: dict[str, Callable[[], str]] = {}
    if any(row.epoch_s is not None for row in rows(results)):
        found["ladder.svg"] = partial(ladder, results)
    if _curves(results):
        found["loss_curves.svg"] = _drawn(loss_curves, results)
    if has_curves(results):
        found["curves.svg"] = _drawn(curves, [results])
    if chain(results):
        found["waterfall.svg"] = partial(waterfall, results)
    ablations = {group: name for group, name in FIGURES.items() if ablation(results, group)}
    found |= {name: _drawn(ablation_figure, results, group) for group, name in ablations.items()}
    drawn = with_timeline(results)
    if drawn:
        found["timelines.svg"] = _drawn(timelines, results)
    return found | {timeline_name(stage): _drawn(stage_timeline, stage, results) for stage in drawn}


def _drawn(draw: Callable[P, Figure], *args: P.args, **options: P.kwargs) -> Callable[[], str]:
    """A function that draws a figure and renders it."""
    return lambda: svg(draw(*args, **options))


def loss_curves(results: Results) -> Figure:
    """The loss of every epoch, and below it each curve's distance from the oracle's; at least one curve is needed.

    The curves of correct stages coincide, so the markers are hollow and shrink from stage to stage. In the lower panel,
    stages with sparse metrics share a few epochs and stand side by side around them.
    """
    curves = _curves(results)
    oracle = _oracle_losses(results.oracle)
    shifts = _shifts(curves, results.problem)
    with mpl.rc_context(STYLE):
        columns = 3 if max(len(name) for name, _ in curves) <= 30 else 2
        height = 3.4 + (2.6 if oracle else 0) + 0.25 * math.ceil((len(curves) + bool(oracle)) / columns)
        figure = Figure(figsize=(WIDTH, height), layout="constrained", facecolor=BACKGROUND)
        panels = figure.subplots(2 if oracle else 1, sharex=True, squeeze=False)[:, 0]
        upper, lower = panels[0], panels[-1]
        if oracle:
            upper.plot(*zip(*oracle.items(), strict=True), color=ORACLE, linewidth=7, label="float64 oracle")
        for index, ((name, points), shift) in enumerate(zip(curves, shifts, strict=True)):
            look = _look(index, len(curves), points)
            losses = {point.epoch: point.loss for point in points if point.loss is not None}
            upper.plot(list(losses), list(losses.values()), label=name, **look)
            distances = {
                epoch: max(abs(loss - oracle[epoch]) / oracle[epoch], NEAREST)
                for epoch, loss in losses.items()
                if oracle.get(epoch)
            }
            if distances:
                beside = [epoch + shift for epoch in distances]
                lower.plot(beside, list(distances.values()), **look)
        upper.set_ylabel("mean training loss")
        if oracle:
            lower.set_yscale("log")
            lower.set_ylabel(f"relative distance from the oracle\n({NEAREST:.0e} or less at the bottom)")
        for axes in panels:
            tidy(axes, "both")
        lower.set_xlabel("epoch" + (" (below, sparse metrics are drawn side by side)" if any(shifts) else ""))
        lower.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
        figure.legend(loc="outside lower center", ncols=columns, frameon=False)
        title(figure, "Training loss", results)
    return figure


def _curves(results: Results) -> list[Curve]:
    """The loss curves of the stages that passed, in table order."""
    return [
        (name_of(stage), stage.metrics.loss_curve)
        for stage in table_order(results)
        if stage.status == "passed"
        and stage.metrics is not None
        and any(point.loss is not None for point in stage.metrics.loss_curve)
    ]


def _oracle_losses(oracle: OracleRecord | None) -> dict[int, float]:
    return {} if oracle is None else {point.epoch: point.loss for point in oracle.loss_curve if point.loss is not None}


def _look(index: int, curves: int, points: Sequence[LossPoint]) -> dict[str, object]:
    shrink = index / max(curves - 1, 1)
    return {
        "color": PALETTE[index % len(PALETTE)],
        "marker": MARKERS[index % len(MARKERS)],
        "markersize": 13 - 8 * shrink,
        "markerfacecolor": "none",
        "markeredgewidth": 1.1,
        "linestyle": "none" if _is_sparse(points) else "-",  # a line over epochs without metrics would invent losses
        "linewidth": 0.8,
    }


def _is_sparse(points: Sequence[LossPoint]) -> bool:
    return [point.epoch for point in points] != list(range(1, len(points) + 1))


def _shifts(curves: Sequence[Curve], problem: ProblemRecord) -> list[float]:
    """The shift of each curve in epochs: sparse ones stand side by side, others at their place."""
    sparse = [index for index, (_, points) in enumerate(curves) if _is_sparse(points)]
    step = min(0.015 * problem.epochs, 0.8 * problem.metrics_every / max(len(sparse), 1))  # about the width of a marker
    shifts = [0.0] * len(curves)
    for place, index in enumerate(sparse):
        shifts[index] = (place - (len(sparse) - 1) / 2) * step
    return shifts
