"""The roofline of a run: each rung's rate over its arithmetic intensity, below the measured limits of the GPU.

Williams, Waterman, Patterson: Roofline, CACM 2009. The rate is the step's products by its time, the intensity the same
products by the bytes that the rung's kernels must move to or from L2 or memory. Small networks stay far below, as they
wait: so each rung also has a latency roof, its products by the time that its own launches, kernels and exchanges take.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import get_args

from ladder.records.limits_record import LimitsRecord
from ladder.records.run import Precision, Results, StageResult
from reports.facts import numbers
from reports.facts.kernel_bottleneck import largest_part
from reports.facts.launch_regimes import regime
from reports.facts.run_table import headline_rungs
from reports.figures.canvas import Anchor, Canvas
from reports.figures.chart import LINE as TEXT_LINE
from reports.figures.chart import RADIUS, Heading, Point, Room, Scale, draw_lines, legend, text_width
from reports.figures.ladder import COLOURS, regime_keys
from reports.figures.style import PIXELS, Colour, subject

MOST_RUNGS = 11
LEFT, RIGHT, TOP, BOTTOM = 62, PIXELS - 20, 100, 448  # pixels: the axes
LETTER, LINE = 7.3, 13  # pixels: the width and height of a label's letter
LOWER = 0.9  # of the chip's roof; a latency roof above it is the same traffic, with a launch or two
ROOF = 9  # half the length of a latency roof
UNITS: tuple[Precision, ...] = get_args(Precision)
NAMES: dict[str, str] = {unit: numbers.precision(unit) for unit in UNITS}
PATHS = (("l2_read", "L2"), ("memory_copy", "memory"))
ALONG = (0.2, 0.3, 0.1, 0.4, 0.5, 0.6, 0.8)  # a slope: where its label may stand
SAYS = "Lines: limits that this run measured; grey: not over {}. Of dots that would touch, the fastest is drawn."
SAYS_OWN = "Bar: the rate of {} at the floor of its design, mostly {}."
SAYS_ROOF = "The roof over {}: {} TFLOP/s of {}{}."
MADE = "; its float32 can be made on {} units too"
HEIGHT = BOTTOM + 66 + TEXT_LINE
MARGIN = 0.2  # of an axis, before the first dot: room for names
FAR = 16  # pixels that stay free at a label's far end
NUDGES = sorted(range(-156, 157, LINE), key=abs)  # pixels: a label's distances from its dot's height, nearest first


@dataclass(frozen=True)
class RooflinePoint:
    """A rung: flops a byte, and TFLOP/s."""

    stage: StageResult
    intensity: float
    rate: float

    @property
    def latency(self) -> tuple[str, float, float]:
        """What takes longest in the floor of its design, the floor in us, and the TFLOP/s that it allows, maybe inf."""
        design = self.stage.bounds.design if self.stage.bounds is not None else None
        if design is None or design.total_us <= 0:
            return "", 0.0, math.inf
        return largest_part(design), design.total_us, design.flops / design.total_us / 1e6

    @property
    def label(self) -> str:
        """Its name, with the precision unless that is float32, or in its name."""
        name, own = self.stage.name, NAMES[self.stage.precision]
        return name if own == "float32" or own in name else f"{name} ({own})"


@dataclass(frozen=True)
class Roof:
    """The measured limits: TFLOP/s by unit, TB/s by path."""

    units: dict[Precision, float]
    paths: dict[str, float]

    @classmethod
    def of(cls, record: LimitsRecord) -> Roof:
        """The best samples of a run's limits."""
        limits = {limit.name: limit.best for limit in record.limits}
        units = {unit: limits[f"gemm_{unit}"] for unit in UNITS if f"gemm_{unit}" in limits}
        return cls(units, {title: limits[name] / 1e3 for name, title in PATHS if name in limits})

    def applying(self, point: RooflinePoint) -> tuple[str, Precision]:
        """The fastest path, and the unit of the rung's precision.

        float32 stands for the fastest unit: some rungs keep its precision on tensor cores.
        """
        own, path = point.stage.precision, max(self.paths, key=self.paths.__getitem__)
        return path, own if own in self.units and own != "float32" else max(self.units, key=self.units.__getitem__)

    def over(self, point: RooflinePoint) -> tuple[str, float]:
        """The roof over a rung, by name, with its TFLOP/s: a path such as L2, or the unit of the rung's precision."""
        path, unit = self.applying(point)
        by_path = point.intensity * self.paths[path]
        return (path, by_path) if by_path < self.units[unit] else (unit, self.units[unit])


@dataclass
class Plot:
    """The axes, logarithmic in both directions, and the room for labels."""

    left: float  # flops a byte at its left end
    across: Scale  # flops a byte
    up: Scale  # TFLOP/s
    room: Room = field(default_factory=lambda: Room((LEFT, TOP, RIGHT, BOTTOM)))
    dots: Room = field(default_factory=lambda: Room((LEFT, TOP, RIGHT, BOTTOM)))  # without anything else

    def place(self, point: RooflinePoint) -> tuple[float, float]:
        """The pixels of a rung's dot."""
        return self.across.place(point.intensity), self.up.place(point.rate)


def points(results: Results) -> list[RooflinePoint]:
    """The rungs with a time and a counted design, at most eleven, the fastest first; empty without measured limits."""
    if results.limits is None or not Roof.of(results.limits).units or not Roof.of(results.limits).paths:
        return []
    dots = []
    for stage in headline_rungs(results, MOST_RUNGS):
        design = stage.bounds.design if stage.bounds is not None else None
        if design is not None and stage.timing is not None and design.flops and design.bytes:
            rate = design.flops / stage.timing.step_us / 1e6
            dots.append(RooflinePoint(stage, design.flops / design.bytes, rate))
    return sorted(dots, key=lambda point: -point.rate)


def drawn(results: Results) -> Canvas:
    """The figure; at least one rung must have a point."""
    dots = points(results)
    assert results.limits is not None
    roof, fastest = Roof.of(results.limits), dots[0]
    title = headline(fastest, roof)
    is_own = fastest.latency[-1] < LOWER * roof.over(fastest)[1]
    canvas = Canvas(PIXELS, HEIGHT + 2 * is_own * TEXT_LINE, f"{title}: {subject(results)}", _description(dots, roof))
    plot = _plot(dots, roof)
    Heading(title, subject(results), look="bold").draw(canvas)
    legend(canvas, regime_keys(point.stage for point in dots), 52)
    canvas.text(12, 88, "TFLOP/s in a step's matrix products, log scale (higher is faster)", "faint", look="small")
    plot.up.draw_beside(canvas, LEFT, RIGHT)
    plot.across.draw_below(canvas, TOP, BOTTOM)
    words = "flops per byte that the kernels move to or from L2 or memory, log scale"
    canvas.text(LEFT, BOTTOM + 34, words, "faint", look="small")
    shown = []
    for point in dots:
        at, height = plot.place(point)
        if plot.dots.is_free((at - RADIUS, height - LINE, at + RADIUS, height + LINE)):
            plot.dots.marks.append((at - RADIUS, height - RADIUS, at + RADIUS, height + RADIUS))
            shown.append(point)
    plot.room.marks += plot.dots.marks
    if is_own:
        _latency_roof(canvas, plot, fastest)
    _roofs(canvas, plot, roof, fastest)
    if is_own:
        _name_latency_roof(canvas, plot, fastest)
    (path, over), (_, unit), name = roof.over(fastest), roof.applying(fastest), fastest.stage.name
    by = NAMES.get(path, path)
    for point in shown:
        share = f", {100 * point.rate / over:.2g}% of {by}'s roof" * (point is fastest)
        _label(canvas, plot, point, f"{point.label}{share}", f"mono halo{' bold' * (point is fastest)}")
        canvas.dot(*plot.place(point), RADIUS, COLOURS[regime(point.stage)])
    made = MADE.format(NAMES[unit]) * (fastest.stage.precision == "float32" != unit)
    own = SAYS_OWN.format(name, fastest.latency[0]), SAYS_ROOF.format(name, _rate(over), by, made)
    draw_lines(canvas, [SAYS.format(name), *own * is_own], BOTTOM + 56)
    return canvas


def _latency_roof(canvas: Canvas, plot: Plot, point: RooflinePoint) -> None:
    """A short bar at the most that the rung's own design allows."""
    at, top, colour = plot.across.place(point.intensity), plot.up.place(point.latency[-1]), COLOURS[regime(point.stage)]
    low = plot.up.place(point.rate)
    canvas.line([(at, low), (at, top)], colour, dash="2 3")
    canvas.line([(at - ROOF, top), (at + ROOF, top)], colour, width=2.5)
    plot.room.keep_free((at, low), (at, top))
    plot.room.keep_free((at - ROOF, top), (at + ROOF, top))


def _name_latency_roof(canvas: Canvas, plot: Plot, point: RooflinePoint) -> None:
    """What allows no more than that bar, and its rate, beside its end."""
    part, least_us, rate = point.latency
    at, top = plot.across.place(point.intensity), plot.up.place(rate)
    sides: tuple[tuple[int, Anchor], ...] = ((1, "start"), (-1, "end"))
    places = [(at + side * (ROOF + 4), top + by, end) for by in (4, -4, 12, -12, 20, -20) for side, end in sides]
    words = f"{_rate(rate)} TFLOP/s at most: {numbers.microseconds(least_us)} us, mostly {part.split()[0]}"
    _words(canvas, plot, places, words)


def headline(fastest: RooflinePoint, roof: Roof) -> str:
    """The fastest rung's rate below the lowest roof over it: the chip's, or the least time of its own design."""
    (path, over), (part, least_us, latency), timing = roof.over(fastest), fastest.latency, fastest.stage.timing
    told = f"{fastest.stage.name}: {_rate(fastest.rate)} TFLOP/s"
    if latency < LOWER * over and timing is not None:
        least, step = map(numbers.microseconds, (least_us, timing.step_us))
        share = numbers.rough_share(least_us / timing.step_us)
        return f"{told}; its design's floor is {least} of its {step} us ({share}), mostly {part.split()[0]}"
    return f"{told}, {100 * fastest.rate / over:.2g}% of what {NAMES.get(path, path)} allows"


def _description(dots: Sequence[RooflinePoint], roof: Roof) -> str:
    """The figure in words, for a reader who cannot see it."""
    rungs = ", ".join(
        f"{point.stage.name} {_rate(point.rate)} TFLOP/s at {_rate(point.intensity)} flops a byte" for point in dots
    )
    limits = [f"{unit} {_rate(rate)} TFLOP/s" for unit, rate in roof.units.items()]
    limits += [f"{path} {_rate(rate)} TB/s" for path, rate in roof.paths.items()]
    return f"Rungs: {rungs}. Roofs, as measured: {', '.join(limits)}."


def _plot(dots: Sequence[RooflinePoint], roof: Roof) -> Plot:
    """Axes that hold all dots, all units' roofs, and the beginning of the slopes."""
    right = max(*(point.intensity for point in dots), max(roof.units.values()) / min(roof.paths.values())) * 4
    left = _before(min(point.intensity for point in dots), right, MARGIN)
    high = max(roof.units.values()) * 2
    low = _before(min(*(point.rate for point in dots), left * min(roof.paths.values())), high, MARGIN)
    return Plot(left, Scale.log([left, right], LEFT, RIGHT), Scale.log([low, high], BOTTOM, TOP))


def _before(first: float, last: float, share: float) -> float:
    """The beginning of a log axis that ends at `last` and has `first` after this share of its length."""
    return first * math.pow(first / last, share / (1 - share))


def _roof_line(canvas: Canvas, plot: Plot, begin: Point, end: Point, *, applies: bool) -> None:
    """A line of the roof, which no rung's label may cover; thin and grey if it does not apply to the fastest rung."""
    canvas.line([begin, end], "ink" if applies else "faint", width=2 if applies else 0.75)
    plot.room.keep_free(begin, end)


def _roofs(canvas: Canvas, plot: Plot, roof: Roof, fastest: RooflinePoint) -> None:
    """A slope for each path to the highest unit, and a level for each unit from the steepest slope on."""
    highest, steepest = max(roof.units.values()), max(roof.paths.values())
    applying = roof.applying(fastest)
    for number, (path, speed) in enumerate(sorted(roof.paths.items(), key=lambda roof: -roof[1])):
        end = highest / speed
        begin, crest = (LEFT, plot.up.place(plot.left * speed)), (plot.across.place(end), plot.up.place(highest))
        _roof_line(canvas, plot, begin, crest, applies=path in applying)
        words, side = f"{path}, {_rate(speed)} TB/s", -1 if number == 0 else 1  # above the first slope, below others
        places = [
            (plot.across.place(on), plot.up.place(on * speed))
            for on in (plot.left * (end / plot.left) ** share for share in ALONG)
        ]
        anchor: Anchor = "end" if number == 0 else "start"
        beside = [(x + 10 * side, y + (10 if side > 0 else -2), anchor) for x, y in places]
        _words(canvas, plot, beside, words, "ink" if path in applying else "faint")
    levels = sorted(roof.units.items(), key=lambda roof: -roof[1])
    for unit, level in levels:
        at = plot.up.place(level)
        _roof_line(canvas, plot, (plot.across.place(level / steepest), at), (RIGHT, at), applies=unit in applying)
    while levels:
        alike = [levels.pop(0)]
        top = plot.up.place(alike[0][1])
        while levels and plot.up.place(levels[0][1]) - top < LINE:
            alike.append(levels.pop(0))
        words = f"{', '.join(f'{NAMES[unit]} {_rate(level)}' for unit, level in alike)} TFLOP/s"
        is_ours = any(unit in applying for unit, _ in alike)
        _words(canvas, plot, [(RIGHT, top - 5, "end")], words, "ink" if is_ours else "faint")


def _words(
    canvas: Canvas, plot: Plot, places: Sequence[tuple[float, float, Anchor]], words: str, colour: Colour = "ink"
) -> None:
    """A roof's label at the first free place, else at the last within the axes, which no rung's label may cover."""
    width = text_width(words, "small")
    for x, y, anchor in places:
        left = max(x - width * (anchor == "end"), LEFT)
        box = (left, y - LINE + 3, left + width, y + 4)
        if plot.room.is_free(box):
            break
    plot.room.words.append(box)
    at_end = anchor == "end" and left > LEFT
    canvas.text(x if at_end else left, y, words, colour, anchor="end" if at_end else "start", look="small halo")


def _label(canvas: Canvas, plot: Plot, point: RooflinePoint, words: str, look: str) -> None:
    """The name beside its dot, or at the nearest free place with a line to it."""
    at, height = plot.place(point)
    width, half = LETTER * len(words) * (1.1 if "bold" in look else 1), LINE / 2
    for crosses, nudge, side in itertools.product((False, True), NUDGES, (1, -1)):  # rather than no name, a crossed one
        away = 9 if abs(nudge) < LINE else 24
        start, middle = at + away if side > 0 else at - away - width, height + nudge
        box = (start, middle - half, start + width, middle + half)
        beyond = FAR if side > 0 else -FAR  # what stands there seems to bear the name
        tip = (start - 3 if side > 0 else start + width + 3, middle)
        is_free = plot.room.is_free((box[0] + min(beyond, 0), box[1], box[2] + max(beyond, 0), box[3]))
        if is_free and (crosses or not nudge or not plot.room.crosses_words((at, height), tip)):
            break
    else:
        return  # more labels than the figure has room for; the table of the report names all
    plot.room.words.append(box)
    if nudge:
        canvas.line([(at, height), tip], "faint")
        plot.room.keep_free((at, height), tip)
    at_end = start if side > 0 else start + width
    canvas.text(at_end, middle + 4, words, anchor="start" if side > 0 else "end", look=look)


def _rate(value: float) -> str:
    return f"{value:,.3g}"
