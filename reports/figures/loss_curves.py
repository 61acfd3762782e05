"""Loss and accuracy over a training run, of the float64 oracle and of all stages, over one or several seeds.

The curves of correct stages coincide, so one panel shows how far they lie from the oracle's. It has one line, the
farthest of all stages, since thirty hide one another; words name the farthest of each precision.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

from ladder.records.run import Curve, CurvePoint, Precision, Results
from reports.facts import numbers
from reports.facts.grouped import grouped
from reports.facts.oracle_distance import OracleDistance, largest, oracle_distances
from reports.facts.run_table import name_of
from reports.figures.canvas import Canvas
from reports.figures.chart import APART, LINE, ONE_LINE, Heading, Scale, draw_lines, spread_apart, text_width
from reports.figures.style import PIXELS, Colour, subject

LEFT, RIGHT, LABELS = 66, 570, 620  # pixels: the axes, and the labels on their right
TOP, GAP, BOTTOM, ROW = 82, 40, 58, 14  # pixels; the last, of a label's rows
TRAINING, DISTANCE, VALIDATION = 170, 230, 110  # pixels: the height of a panel
PARTS = 30  # of training, in each of which a line shows the largest distance: a line through every point is a scribble
FAINT = 0.4  # opacity of a range
NEAREST = 1e-10  # smaller relative distances are drawn here: a log axis has no zero
Value = Callable[[CurvePoint], float | None]
SEEN: tuple[tuple[str, str, float, Value], ...] = (
    ("training", "training loss, the mean of {} steps a point, log scale", TRAINING, lambda seen: seen.loss),
    ("validation", "validation loss after each epoch", VALIDATION, lambda seen: seen.loss),
    ("validation", "validation accuracy after each epoch", VALIDATION, lambda seen: seen.accuracy),
)


@dataclass(frozen=True)
class Line:
    """Numbers by step; with `lows` also, a range."""

    by_step: Mapping[int, float]
    colour: Colour
    width: float  # pixels
    label: tuple[str, ...] = ()  # beside its end, and below that
    lows: Mapping[int, float] | None = None
    peak: str = ""  # the name of its largest number, which then has a dot


def has_curves(run: Results) -> bool:
    """Whether a run recorded curves."""
    return any(stage.curve for stage in run.stages)


def curves(runs: Sequence[Results]) -> Canvas:
    """The curves of runs that differ only in their seeds; at least one run must have curves."""
    distances, steps = oracle_distances(runs), _steps(runs[0])
    training, *validation = [
        Panel(text.format(_stretch(runs[0])), kind == "training", height, _ranges(runs[:1], kind, value, len(runs)))
        for kind, text, height, value in SEEN
    ]
    of = "its limit" if _has_limits(distances) else "the first epoch's"
    text = (
        f"distance from the oracle's loss, as a share of {of}, per {PARTS}th of training, log scale (lower is nearer)"
    )
    distance = Panel(text, True, DISTANCE, _distances(distances))
    drawn = [panel for panel in (training, distance, *validation) if panel.lines]
    last = max((max(line.by_step) for panel in drawn for line in panel.lines), default=steps)
    title = "Training and validation"
    if judged := [one.within for one in distances if one.within is not None]:
        inside = f"{sum(judged)} of {numbers.count(len(judged), 'stage')}"
        title = f"{inside} stay within the limit of the float64 loss throughout training{_worst(distances)}"
    says = list(_says(distances))
    heading = Heading(title, subject(runs[0]), colour="ink" if all(judged) else "limit")
    top = TOP + heading.bottom - ONE_LINE
    bottom = top + sum(panel.height + GAP for panel in drawn) - GAP
    height = bottom + BOTTOM + LINE * max(len(says) - 1, 0)
    canvas = Canvas(PIXELS, height, f"{title}: {subject(runs[0])}", _description(distances))
    heading.draw(canvas)
    for panel in drawn:
        panel.draw(canvas, top, lambda step: LEFT + step / last * (RIGHT - LEFT))
        top += panel.height + GAP
    for epoch in range(0, last // steps + 1, max(1, last // steps // 10)):
        place = LEFT + epoch * steps / last * (RIGHT - LEFT)
        canvas.text(place, bottom + 16, f"{epoch}", "faint", anchor="middle", look="small")
    canvas.text((LEFT + RIGHT) / 2, bottom + 32, "epoch", "faint", anchor="middle", look="small")
    draw_lines(canvas, says, bottom + 50)
    return canvas


def _worst(distances: Sequence[OracleDistance]) -> str:
    """The stage that comes nearest to its limit: `: tf32 reaches 0.97 of it`; empty if one leaves it."""
    shares = [(one.worst / one.limit, name_of(one.stage)) for one in distances if one.limit]
    share, name = max(shares, key=lambda one: one[0], default=(math.inf, ""))
    return f": {name} reaches {share:.2g} of it" if share <= 1 else ""


def _says(distances: Sequence[OracleDistance]) -> Iterator[str]:
    """How to read the distances."""
    if distances:
        yield f"Line: the farthest stage of all seeds, at its farthest point in each {PARTS}th of training."
    if _has_limits(distances):
        yield "Stricter than the check, whose limit is for the mean loss of an epoch: shorter stretches scatter more."


def _has_limits(distances: Sequence[OracleDistance]) -> bool:
    """Whether all distances can be shown as shares of their limits."""
    return bool(distances) and all(one.limit for one in distances)


@dataclass(frozen=True)
class Panel:
    """Lines over steps on one axis."""

    text: str
    is_log: bool
    height: float
    lines: list[Line]

    def scale(self, top: float) -> Scale:
        """From the least to the largest number that can be drawn."""
        drawn = (value for line in self.lines for value in (*line.by_step.values(), *(line.lows or {}).values()))
        values = [value for value in drawn if math.isfinite(value) and (not self.is_log or value > NEAREST)]
        low, high = min(values, default=NEAREST), max(values, default=1.0)
        ends = (low, high) if low < high else (low * 0.9, high * 1.1 or 1.0)
        places = top + self.height, top
        return Scale.log(ends, *places) if self.is_log else Scale.linear(ends, *places, APART)

    def draw(self, canvas: Canvas, top: float, across: Callable[[int], float]) -> None:
        """The axis, the lines, and a label at the end of each line that has one; few points are dots as well."""
        canvas.text(12, top - 8, self.text, "faint", look="small")
        scale = self.scale(top)
        scale.draw_beside(canvas, LEFT, RIGHT)
        for line in self.lines:
            ends = [edge for edge in (line.by_step, line.lows) if edge]
            edges = [[(across(step), scale.within(value)) for step, value in edge.items()] for edge in ends]
            if line.peak:
                at, height = min(edges[0], key=lambda point: point[1])
                canvas.dot(at, height, 3, line.colour)
                has_room = height - top > 2 * ROW  # else the panel's name stands above
                width = text_width(line.peak, "small bold")
                left = max(LEFT, min(at - width / 2 if has_room else at + 7, RIGHT - width))
                canvas.text(left, height - 7 if has_room else height + ROW, line.peak, look="small bold halo")
            if line.lows:
                canvas.polygon([*edges[0], *reversed(edges[1])], "step", opacity=FAINT)
            for edge in edges:
                canvas.line(edge, line.colour, width=line.width)
                for point in edge if len(edge) < PARTS and line.lows else ():
                    canvas.dot(*point, line.width + 1, line.colour)
        labelled = [(line, line.label, list(line.by_step.items())[-1]) for line in self.lines if line.label]
        wanted = [scale.within(value) for _, _, (_, value) in labelled]
        spacing = ROW * max((len(line.label) for line in self.lines), default=0) + 3
        places = spread_apart(wanted, top, self.height, spacing)
        for (line, label, (step, _)), end, middle in zip(labelled, wanted, places, strict=True):
            canvas.line([(across(step), end), (RIGHT + 14, middle)], "faint", width=0.5)
            canvas.line([(RIGHT + 14, middle), (LABELS - 6, middle)], line.colour, width=line.width)
            canvas.text(LABELS, middle + 1, label[0], "limit" if line.colour == "limit" else "ink", look="small bold")
            for row, words in enumerate(label[1:], start=1):
                canvas.text(LABELS, middle + 1 + ROW * row, words, "faint", look="small")


def _ranges(runs: Sequence[Results], kind: str, value: Value, seeds: int) -> list[Line]:
    """From the least to the largest number: of the oracle, and of all stages."""
    found = [(name, seen) for run in runs for name, curve in _curves(run) for seen in getattr(curve, kind)]
    names = {name for name, _ in found} - {"oracle"}
    over = "least to largest" + f", first of {numbers.count(seeds, 'seed')}" * (seeds > 1)
    looks: tuple[tuple[str, set[str], Colour, float], ...] = (
        ("float64 oracle", {"oracle"}, "step", 4),
        (numbers.count(len(names), "stage"), names, "ink", 1),
    )
    lines = []
    for words, chosen, colour, width in looks:
        pairs = ((seen.step, value(seen)) for name, seen in found if name in chosen)
        at_step = grouped((step, number) for step, number in pairs if number is not None)
        highs, lows = [{step: end(at_step[step]) for step in sorted(at_step)} for end in (max, min)]
        if highs:
            label = (words, over) if kind == "training" else ()
            lines.append(Line(highs, colour, width, label=label, lows=lows))
    return lines


def _distances(distances: Sequence[OracleDistance]) -> list[Line]:
    """The line of the farthest stage, below the limit if every stage has one, and the farthest of each precision."""
    has_limits = _has_limits(distances)
    shares = {
        one.stage.name: {
            step: far / (one.limit if has_limits and one.limit else 1.0) for step, far in one.by_step.items()
        }
        for one in distances
    }
    if not shares:
        return []
    peaks = {name: max(share.values()) for name, share in shares.items()}
    words = {name: f"{peak:.2g}" if has_limits else numbers.error(peak) for name, peak in peaks.items()}
    label = [f"farthest of {numbers.count(len(shares), 'stage')}", "the highest of each precision:"]
    for precision in get_args(Precision):
        if own := [one for one in distances if one.stage.precision == precision]:
            farthest = max(own, key=lambda one: (one.within is False, peaks[one.stage.name]))
            far = words[farthest.stage.name] if math.isfinite(peaks[farthest.stage.name]) else "not finite"
            label.append(f"{numbers.precision(precision)}: {name_of(farthest.stage)} {far}")
    colour: Colour = "limit" if any(one.within is False for one in distances) else "ink"
    top = max(peaks, key=peaks.__getitem__)
    peak = f"{top} {words[top]}" if math.isfinite(peaks[top]) else ""
    lines = [Line(thinned(largest(list(shares.values()))), colour, 1.4, tuple(label), peak=peak)]
    if has_limits:
        ends = dict.fromkeys((0, max(max(one.by_step) for one in distances)), 1.0)
        lines.insert(0, Line(ends, "limit", 1.4, ("the limit", "each stage's own")))
    return lines


def thinned(by_step: Mapping[int, float]) -> dict[int, float]:
    """The step with the largest distance in each part of training."""
    steps = sorted(by_step)
    parts = grouped((index * PARTS // len(steps), step) for index, step in enumerate(steps))
    return {(step := max(part, key=by_step.__getitem__)): by_step[step] for part in parts.values()}


def _description(distances: Sequence[OracleDistance]) -> str:
    """The largest distance of each stage from the oracle, for a reader who cannot see the lines."""
    rows = ", ".join(f"{one.stage.name} {numbers.error(one.worst)}" for one in distances)
    return f"Largest distance of each stage's training loss from the oracle's, over all seeds: {rows or 'not known'}."


def _curves(run: Results) -> Iterator[tuple[str, Curve]]:
    if run.oracle is not None and run.oracle.curve is not None:
        yield from (("oracle", curve) for curve in (run.oracle.curve, *run.oracle.earlier_curves))
    yield from ((stage.name, stage.curve) for stage in run.stages if stage.curve is not None)


def _stretch(run: Results) -> int:
    """The steps whose mean loss a training point is."""
    return next((curve.training[0].step for _, curve in _curves(run) if curve.training), 1)


def _steps(run: Results) -> int:
    return run.problem.train_images // run.problem.batch_size
