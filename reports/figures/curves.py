"""Loss and accuracy over a training run, of every stage and the oracle; several seeds become a mean and a band.

The curves of correct stages coincide, so one panel shows each one's distance from the oracle's.
"""

from __future__ import annotations

import csv
import io
import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ladder.records.run import Curve, CurvePoint, Results, StageResult
from reports.facts import numbers
from reports.facts.regimes import regime
from reports.facts.summary import name_of
from reports.figures.canvas import apart
from reports.figures.ladder import COLOURS
from reports.figures.style import BACKGROUND, FAINT, NEAREST, ORACLE, STYLE, THEME, WIDTH, log_y, tidy, title

LABEL = 0.15  # inches, the height of a stage's name
Value = Callable[[CurvePoint], float | None]
PANELS: tuple[tuple[str, str, Value], ...] = (
    ("training", "training loss", lambda seen: seen.loss),
    ("validation", "validation loss", lambda seen: seen.loss),
    ("validation", "validation accuracy", lambda seen: seen.accuracy),
)


@dataclass(frozen=True)
class Band:
    """The mean, least and largest of several curves, by epoch, which may be a fraction."""

    epochs: list[float]
    means: list[float]
    lows: list[float]
    highs: list[float]


def has_curves(run: Results) -> bool:
    """Whether a run recorded curves."""
    return any(stage.curve for stage in run.stages)


def curves(runs: Sequence[Results]) -> Figure:
    """The curves of runs that differ only in their seeds; at least one run must have curves."""
    stages = list({stage.name: stage for run in runs for stage in run.stages if stage.curve}.values())
    stages.sort(key=lambda stage: stage.group == "reference")
    inches = max(2.0, LABEL * len(stages))
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, 6.4 + inches), layout="constrained", facecolor=BACKGROUND)
        training, distance, *validation = figure.subplots(4, sharex=True, height_ratios=[2, inches, 1.6, 1.6])
        panels = [training, *validation]
        for axes, (kind, text, value) in zip(panels, PANELS, strict=True):
            _draw(axes, band(runs, "", kind, value), color=ORACLE, linewidth=6, alpha=0.35)
            for stage in stages:
                _draw(axes, band(runs, stage.name, kind, value), **_look(stage))
            axes.set_ylabel(text)
        for stage in stages:
            _draw(distance, distances(runs, stage.name), **_look(stage))
        log_y(training)
        distance.set_yscale("log")
        distance.set_ylabel("relative distance of\nthe training loss\nfrom the oracle's")
        for axes in (training, distance, *validation):
            tidy(axes, "both")
        _label(distance, [(stage, distances(runs, stage.name)) for stage in stages], inches)
        count = numbers.count(len(stages), "stage")
        training.annotate(f"wide: float64 oracle\nthin: {count}", (1.02, 0.5), xycoords="axes fraction", color=FAINT)
        validation[-1].set_xlabel("epoch" + (f"; mean and range of {len(runs)} seeds" if len(runs) > 1 else ""))
        validation[-1].xaxis.set_major_locator(MaxNLocator(integer=True))
        title(figure, "Training and validation", runs[0])
    return figure


def _label(axes: Axes, lines: Sequence[tuple[StageResult, Band]], inches: float) -> None:
    """Write each stage's name on the right, near the end of its line."""
    known = [(stage, line) for stage, line in lines if line.means]
    transform = axes.get_yaxis_transform()
    low, high = (math.log(end) for end in axes.get_ylim())
    wanted = [(high - math.log(line.means[-1])) / (high - low) * inches for _, line in known]
    for (stage, line), place in zip(known, apart(wanted, 0, inches, LABEL), strict=True):
        at = math.exp(high - place / inches * (high - low))
        colour = _look(stage)["color"]
        axes.plot([1.0, 1.02], [line.means[-1], at], color=colour, linewidth=0.6, transform=transform, clip_on=False)
        axes.annotate(
            name_of(stage), (1.03, at), xycoords=transform, color=colour, fontsize=8, va="center", annotation_clip=False
        )


def curves_csv(runs: Mapping[tuple[str, ...], Results], header: Sequence[str]) -> str:
    """Every point of every curve, the oracle's included; each run's lines begin with the values of its key."""
    with io.StringIO(newline="") as text:
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow([*header, "stage", "kind", "step", "epoch", "loss", "accuracy"])
        for values, run in runs.items():
            steps = _steps(run)
            for name, curve in _curves(run):
                for kind, points in (("training", curve.training), ("validation", curve.validation)):
                    for seen in points:
                        epoch = round(seen.step / steps, 6)
                        writer.writerow([*values, name, kind, seen.step, epoch, seen.loss, seen.accuracy])
        return text.getvalue()


def band(runs: Sequence[Results], name: str, kind: str, value: Value) -> Band:
    """The band of a stage's curves over the runs, at the steps that all of them have; "" is the oracle."""
    found = [_numbers(run, name, kind, value) for run in runs if _curve(run, name) is not None]
    return _band(found, _steps(runs[0]))


def distances(runs: Sequence[Results], name: str) -> Band:
    """The relative distance of a stage's training loss from the oracle's of the same run."""
    found = []
    for run in runs:
        own, oracle = (_numbers(run, who, "training", lambda seen: seen.loss) for who in (name, ""))
        if own and oracle:
            both = [step for step in own if oracle.get(step)]
            found.append({step: max(abs(own[step] / oracle[step] - 1), NEAREST) for step in both})
    return _band(found, _steps(runs[0]))


def _band(found: Sequence[Mapping[int, float]], steps: int) -> Band:
    shared = sorted(set.intersection(*(set(one) for one in found))) if found else []
    values = [[one[step] for one in found] for step in shared]
    means = [statistics.fmean(several) for several in values]
    return Band([step / steps for step in shared], means, list(map(min, values)), list(map(max, values)))


def _numbers(run: Results, name: str, kind: str, value: Value) -> dict[int, float]:
    """A curve's numbers by step."""
    curve = _curve(run, name)
    points: list[CurvePoint] = getattr(curve, kind) if curve else []
    return {seen.step: number for seen in points if (number := value(seen)) is not None}


def _curve(run: Results, name: str) -> Curve | None:
    return dict(_curves(run)).get(name or "oracle")


def _curves(run: Results) -> Iterator[tuple[str, Curve]]:
    if run.oracle is not None and run.oracle.curve is not None:
        yield "oracle", run.oracle.curve
    for stage in run.stages:
        if stage.curve is not None:
            yield stage.name, stage.curve


def _steps(run: Results) -> int:
    return run.problem.train_images // run.problem.batch_size


def _look(stage: StageResult) -> dict[str, Any]:
    is_reference = stage.group == "reference"
    return {
        "color": THEME[COLOURS[None if is_reference else regime(stage)]][0],
        "linestyle": (0, (4, 2)) if is_reference else "-",
        "linewidth": 1.0,
        "alpha": 0.04,  # up to thirty bands lie on each other
    }


def _draw(axes: Axes, line: Band, *, alpha: float, **look: Any) -> None:
    """A line, with the band around it if its ends differ."""
    if not line.epochs:
        return
    single = "." if len(line.epochs) == 1 else None
    axes.plot(line.epochs, line.means, marker=single, **look)
    if line.lows != line.highs:
        axes.fill_between(line.epochs, line.lows, line.highs, color=look["color"], alpha=alpha, linewidth=0)
