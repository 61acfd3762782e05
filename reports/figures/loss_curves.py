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

from ladder.records.run import Curve, CurvePoint, Results, StageResult
from reports.facts import numbers
from reports.facts.launch_regimes import regime
from reports.facts.run_table import name_of
from reports.figures.canvas import Canvas, round_step, spread_apart
from reports.figures.ladder import COLOURS
from reports.figures.style import NEAREST, PIXELS, Colour, subject

LEFT, RIGHT, TOP, BOTTOM, GAP = 66, 650, 82, 66, 34  # pixels: the axes, and between panels
TRAINING, VALIDATION, LABEL = 190, 120, 13  # pixels: the height of a panel, and of a stage's name
ORACLE_BAND, STAGE_BAND = 0.35, 0.03  # opacity; up to thirty stages' bands lie on each other
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


def curves(runs: Sequence[Results]) -> Canvas:
    """The curves of runs that differ only in their seeds; at least one run must have curves."""
    stages = list({stage.name: stage for run in runs for stage in run.stages if stage.curve}.values())
    stages.sort(key=lambda stage: stage.group == "reference")
    apart_ = {stage.name: distances(runs, stage.name) for stage in stages}
    known = [stage for stage in stages if apart_[stage.name].means]
    training, *validation = [
        Panel(text, kind == "training", _lines(runs, stages, kind, value)) for kind, text, value in PANELS
    ]
    distance = Panel("relative distance of the training loss from the oracle's", True, [
        (stage, apart_[stage.name]) for stage in known
    ])  # fmt: skip
    heights = [
        (training, TRAINING),
        (distance, max(TRAINING, LABEL * len(known))),
        *((panel, VALIDATION) for panel in validation),
    ]
    drawn = [(panel, height) for panel, height in heights if any(line.epochs for _, line in panel.lines)]
    bottom = TOP + sum(height + GAP for _, height in drawn) - GAP
    ends = [epoch for panel, _ in drawn for _, line in panel.lines for epoch in line.epochs]
    first, last = min(ends, default=0.0), max(ends, default=1.0)
    title = "Training and validation"
    canvas = Canvas(PIXELS, bottom + BOTTOM, f"{title}: {subject(runs[0])}", _description(runs, stages, apart_))
    canvas.text(12, 24, title, look="bold large")
    canvas.text(12, 44, subject(runs[0]), "faint")

    def place(epoch: float) -> float:
        return LEFT + (epoch - first) / ((last - first) or 1.0) * (RIGHT - LEFT)

    top = float(TOP)
    for panel, height in drawn:
        at = panel.scale(top, height)
        canvas.text(12, top - 8, panel.text + (", log scale" if panel.is_log else ""), "faint", look="small")
        for value in panel.ticks():
            canvas.line([(LEFT, at(value)), (RIGHT, at(value))], "grid")
            canvas.text(LEFT - 6, at(value) + 4, f"{value:,.4g}", "faint", anchor="end", look="small")
        for stage, line in panel.lines:
            _draw(canvas, stage, line, place, at)
        if panel is distance:
            _label(canvas, panel, (top, height), at)
        top += height + GAP
    for epoch in range(math.ceil(first), math.floor(last) + 1, max(1, round((last - first) / 10))):
        canvas.text(place(epoch), bottom + 16, f"{epoch}", "faint", anchor="middle", look="small")
    seeds = f"; mean and range of {len(runs)} seeds" if len(runs) > 1 else ""
    canvas.text(LEFT, bottom + 34, f"epoch{seeds}", "faint", look="small")
    words = f"Wide: float64 oracle. Thin: {numbers.count(len(stages), 'stage')}; references broken."
    canvas.text(12, bottom + 54, words, "faint", look="small")
    return canvas


@dataclass(frozen=True)
class Panel:
    """Lines over epochs on one axis; a line without a stage is the oracle's."""

    text: str
    is_log: bool
    lines: list[tuple[StageResult | None, Band]]

    @property
    def ends(self) -> tuple[float, float]:
        """The least and the largest number that can be drawn."""
        drawn = (value for _, line in self.lines for value in (*line.lows, *line.highs))
        values = [value for value in drawn if not self.is_log or value > 0]
        low, high = min(values, default=NEAREST), max(values, default=1.0)
        return (low, high) if low < high else (low * 0.9, high * 1.1 or 1.0)

    def scale(self, top: float, height: float) -> Callable[[float], float]:
        """From numbers to pixels."""
        low, high = self.ends
        if not self.is_log:
            return lambda value: top + height - (value - low) / (high - low) * height
        below, above = math.log(low), math.log(high)
        return lambda value: top + height - (math.log(max(value, low)) - below) / (above - below) * height

    def ticks(self) -> list[float]:
        """Three to nine round numbers within the ends."""
        low, high = self.ends
        if self.is_log:
            powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
            every = max(1, len(powers) // 6)
            tens = [10.0**power for power in powers[::every] if low <= 10.0**power <= high]
            if len(tens) > 2:
                return tens
            return [f * 10.0**power for power in powers for f in (1, 2, 5) if low <= f * 10.0**power <= high]
        step = round_step(high - low, 6)
        return [step * index for index in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _lines(
    runs: Sequence[Results], stages: Sequence[StageResult], kind: str, value: Value
) -> list[tuple[StageResult | None, Band]]:
    """The oracle's line, then the stages'."""
    return [(None, band(runs, "", kind, value)), *((stage, band(runs, stage.name, kind, value)) for stage in stages)]


def _draw(
    canvas: Canvas, stage: StageResult | None, line: Band, place: Callable[[float], float], at: Callable[[float], float]
) -> None:
    """A line, with the band around it if its ends differ; a single point is a dot."""
    if not line.epochs:
        return
    colour = _colour(stage)
    if line.lows != line.highs:
        above = [(place(epoch), at(value)) for epoch, value in zip(line.epochs, line.highs, strict=True)]
        below = [(place(epoch), at(value)) for epoch, value in zip(line.epochs, line.lows, strict=True)]
        canvas.polygon([*above, *reversed(below)], colour, opacity=ORACLE_BAND if stage is None else STAGE_BAND)
    points = [(place(epoch), at(value)) for epoch, value in zip(line.epochs, line.means, strict=True)]
    if len(points) == 1:
        canvas.dot(*points[0], 2 if stage else 4, colour)
        return
    dash = "4 2" if stage is not None and stage.group == "reference" else ""
    canvas.line(points, colour, width=1 if stage else 6, dash=dash)


def _colour(stage: StageResult | None) -> Colour:
    """The oracle's colour, a reference's, or that of a rung's regime."""
    return "step" if stage is None else COLOURS[None if stage.group == "reference" else regime(stage)]


def _label(canvas: Canvas, panel: Panel, where: tuple[float, float], at: Callable[[float], float]) -> None:
    """Write each stage's name on the right, near the end of its line."""
    top, height = where
    wanted = [at(line.means[-1]) for _, line in panel.lines]
    for (stage, line), middle in zip(panel.lines, spread_apart(wanted, top, height, LABEL), strict=True):
        if stage is not None:
            canvas.line([(RIGHT, at(line.means[-1])), (RIGHT + 10, middle)], _colour(stage), width=0.6)
            canvas.text(RIGHT + 14, middle + 4, name_of(stage), _colour(stage), look="small")


def _description(runs: Sequence[Results], stages: Sequence[StageResult], bands: Mapping[str, Band]) -> str:
    """The largest distance of each stage from the oracle, for a reader who cannot see the lines."""
    worst = {stage.name: max(highs) for stage in stages if (highs := bands[stage.name].highs)}
    rows = ", ".join(f"{name} {numbers.error(value)}" for name, value in worst.items())
    seeds = f" over {len(runs)} seeds" if len(runs) > 1 else ""
    far = f" Largest relative distance of the training loss from the oracle's{seeds}: {rows}." if rows else ""
    return f"Training loss, validation loss and validation accuracy of {numbers.count(len(stages), 'stage')}.{far}"


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
    of_runs = [_numbers(run, name, kind, value) for run in runs if _curve(run, name) is not None]
    return _band(of_runs, _steps(runs[0]))


def distances(runs: Sequence[Results], name: str) -> Band:
    """The relative distance of a stage's training loss from the oracle's of the same run."""
    numbers = []
    for run in runs:
        own, oracle = (_numbers(run, who, "training", lambda seen: seen.loss) for who in (name, ""))
        if own and oracle:
            both = [step for step in own if oracle.get(step)]
            numbers.append({step: max(abs(own[step] / oracle[step] - 1), NEAREST) for step in both})
    return _band(numbers, _steps(runs[0]))


def _band(curves: Sequence[Mapping[int, float]], steps: int) -> Band:
    shared = sorted(set.intersection(*(set(curve) for curve in curves))) if curves else []
    values = [[curve[step] for curve in curves] for step in shared]
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
