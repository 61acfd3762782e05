"""Loss and accuracy over a training run, of every stage and the oracle; several seeds become a mean and a band.

The curves of correct stages coincide, so one panel shows each one's distance from the oracle's.
"""

from __future__ import annotations

import csv
import io
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ladder.records.run import Curve, CurvePoint, Results, StageResult
from reports.facts.summary import name_of
from reports.figures.style import BACKGROUND, NEAREST, ORACLE, PALETTE, STYLE, WIDTH, log_y, tidy, title

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
    rows = -(-(len(stages) + 1) // 3)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, 8.6 + 0.23 * rows), layout="constrained", facecolor=BACKGROUND)
        training, distance, *validation = figure.subplots(4, sharex=True, height_ratios=[1.3, 1, 1, 1])
        panels = [training, *validation]
        for axes, (kind, text, value) in zip(panels, PANELS, strict=True):
            _draw(axes, band(runs, "", kind, value), "float64 oracle", color=ORACLE, linewidth=6, alpha=0.35)
            for index, stage in enumerate(stages):
                _draw(axes, band(runs, stage.name, kind, value), name_of(stage), **_look(index, stage))
            axes.set_ylabel(text)
        for index, stage in enumerate(stages):
            _draw(distance, distances(runs, stage.name), name_of(stage), **_look(index, stage))
        log_y(training)
        distance.set_yscale("log")
        distance.set_ylabel("relative distance of\nthe training loss\nfrom the oracle's")
        for axes in (training, distance, *validation):
            tidy(axes, "both")
        validation[-1].set_xlabel("epoch" + (f"; mean and range of {len(runs)} seeds" if len(runs) > 1 else ""))
        validation[-1].xaxis.set_major_locator(MaxNLocator(integer=True))
        figure.legend(*training.get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
        title(figure, "Training and validation", runs[0])
    return figure


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


def _look(index: int, stage: StageResult) -> dict[str, Any]:
    return {
        "color": PALETTE[index % len(PALETTE)],
        "linestyle": (0, (4, 2)) if stage.group == "reference" else ("-", (0, (1, 1)))[index // len(PALETTE) % 2],
        "linewidth": 1.3,
        "alpha": 0.12,
    }


def _draw(axes: Axes, line: Band, name: str, *, alpha: float, **look: Any) -> None:
    """A line, with the band around it if its ends differ."""
    if not line.epochs:
        return
    single = "." if len(line.epochs) == 1 else None
    axes.plot(line.epochs, line.means, label=name, marker=single, **look)
    if line.lows != line.highs:
        axes.fill_between(line.epochs, line.lows, line.highs, color=look["color"], alpha=alpha, linewidth=0)
