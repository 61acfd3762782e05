"""The figures of a run as SVG: the list of them, the time of an epoch by stage, and the fall of the loss."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate, pairwise

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from ladder.records.run import LossPoint, OracleRecord, ProblemRecord, Results
from reports.facts import numbers
from reports.facts.ablations import FIGURES, ablation
from reports.facts.baselines import CLASSES
from reports.facts.profiles import timeline_name
from reports.facts.summary import Row, name_of, rows, table_order
from reports.facts.time_breakdown import chain
from reports.figures.ablation_figures import ablation_figure
from reports.figures.curves import curves, has_curves
from reports.figures.style import (
    BACKGROUND,
    FAINT,
    INK,
    NEAREST,
    ORACLE,
    PALETTE,
    REFERENCE,
    RUNG,
    STYLE,
    WIDTH,
    svg,
    tidy,
    title,
)
from reports.figures.timeline import stage_timeline, timelines, with_timeline
from reports.figures.waterfall import waterfall

HATCHES = {"tf32": "---", "bf16/fp16": "///"}  # by class of precision; float32 is plain
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")

Curve = tuple[str, Sequence[LossPoint]]


def figures(results: Results) -> dict[str, str]:
    """Every figure that this run has numbers for, as SVG text by file name; empty if no stage passed."""
    return {name: svg(draw()) for name, draw in drawings(results).items()}


def drawings(results: Results) -> dict[str, Callable[[], Figure]]:
    """Every figure's drawing function by file name."""
    found: dict[str, Callable[[], Figure]] = {}
    if any(row.epoch_s is not None for row in rows(results)):
        found["epoch_time.svg"] = partial(epoch_time, results)
    if _curves(results):
        found["loss_curves.svg"] = partial(loss_curves, results)
    if has_curves(results):
        found["curves.svg"] = partial(curves, [results])
    if chain(results):
        found["waterfall.svg"] = partial(waterfall, results)
    ablations = {group: name for group, name in FIGURES.items() if ablation(results, group)}
    found |= {name: partial(ablation_figure, results, group) for group, name in ablations.items()}
    drawn = with_timeline(results)
    if drawn:
        found["timelines.svg"] = partial(timelines, results)
    return found | {timeline_name(stage): partial(stage_timeline, stage, results) for stage in drawn}


def epoch_time(results: Results) -> Figure:
    """Bars of milliseconds an epoch on a log axis, in table order; at least one stage must have a time."""
    found = rows(results)
    spreads = [row.epoch_s for row in found if row.epoch_s is not None]
    slowest = max(spread.max for spread in spreads) * 1e3
    left = 10 ** math.floor(math.log10(min(spread.min for spread in spreads) * 1e3 / 1.5))
    decades = math.log10(slowest / left)
    places = _places(found)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, 1.3 + 0.36 * (places[-1] + 1)), layout="constrained", facecolor=BACKGROUND)
        axes = figure.add_subplot()
        axes.set_xscale("log")
        axes.set_xlim(left, slowest * 10 ** (0.13 * decades + 0.1))  # room for the number beside the longest bar
        axes.set_ylim(places[-1] + 0.6, -0.6)
        axes.set_yticks(places, [row.shown_name for row in found])
        for place, row in zip(places, found, strict=True):
            _bar(axes, place, row, left)
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if decades < 2.5 else (1,)))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set_xlabel("ms/epoch, log scale: median, with the fastest and the slowest run")
        tidy(axes, "x")
        figure.legend(handles=_keys(found), loc="outside lower right", ncols=4, frameon=False)
        title(figure, "Time of an epoch", results)
    return figure


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


def _bar(axes: Axes, place: float, row: Row, left: float) -> None:
    if row.epoch_s is None:
        axes.annotate(row.status, (left, place), (4, 0), textcoords="offset points", va="center", color=FAINT)
        return
    low, middle, high = (1e3 * value for value in (row.epoch_s.min, row.epoch_s.median, row.epoch_s.max))
    colour, hatch = REFERENCE if row.is_reference else RUNG, HATCHES.get(CLASSES[row.precision])
    axes.barh(place, middle - left, 0.66, left, facecolor=colour, edgecolor=BACKGROUND, linewidth=0, hatch=hatch)
    axes.errorbar(middle, place, xerr=[[middle - low], [high - middle]], color=INK, capsize=3, linewidth=1.2)
    text = numbers.milliseconds(row.epoch_s.median) + (" (throttled)" if row.throttled else "")
    axes.annotate(text, (high, place), (5, 0), textcoords="offset points", va="center")


def _keys(found: Sequence[Row]) -> list[Patch]:
    """The legend: the two colours, and the hatches of the reduced precisions in the figure."""
    classes = {CLASSES[row.precision] for row in found if row.epoch_s is not None}
    hatched = [
        Patch(facecolor=FAINT, edgecolor=BACKGROUND, linewidth=0, hatch=hatch, label=name)
        for name, hatch in HATCHES.items()
        if name in classes
    ]
    return [Patch(color=RUNG, label="rung"), Patch(color=REFERENCE, label="reference"), *hatched]


def _places(found: Sequence[Row]) -> list[float]:
    """The place of each bar: one below the other, with a gap between blocks."""
    ends = list(accumulate((above.block != row.block for above, row in pairwise(found)), initial=0))
    return [index + 0.4 * blocks for index, blocks in enumerate(ends)]


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
