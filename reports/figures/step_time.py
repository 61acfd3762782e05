"""A study's figure: microseconds per step over the varied setting, a line a stage or the fastest rung and reference."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise

from ladder.records.run import Spread, StageResult
from ladder.records.study import Point
from reports.facts import numbers
from reports.facts.grouped import grouped
from reports.facts.launch_regimes import regime
from reports.facts.provenance import gpus_name
from reports.facts.ratios import WITHIN_NOISE
from reports.facts.run_table import dataset_name, name_of
from reports.facts.scaling import scalings
from reports.facts.study_points import (
    PointLead,
    StudyResults,
    is_disturbed,
    point_text,
    point_winners,
    setting,
    setting_text,
    value_text,
)
from reports.facts.times import step_us
from reports.facts.verdict import largest_effect
from reports.figures.canvas import Canvas
from reports.figures.chart import (
    FILE,
    KEY_LINE,
    LINE,
    MARGIN,
    ChartLayout,
    Heading,
    Key,
    Room,
    Scale,
    draw_lines,
    folded,
    key_lines,
    legend,
    number,
    spread_apart,
    text_width,
)
from reports.figures.energy_figure import energies
from reports.figures.ladder import COLOURS, regime_keys
from reports.figures.lead_panels import DASHES, HEIGHT, Contest, draw_contests, draw_name, note
from reports.figures.roofline import Roof
from reports.figures.style import PIXELS, Colour

WIDE = ChartLayout(PIXELS, 66, 575, 596, top=40, row=0)
NARROW = ChartLayout(344, 54, 324, None, top=40, row=0)  # with a label below the axis for each line
CONTEST = ChartLayout(PIXELS, 66, 700, 721, top=40, row=0)  # with the names at the dots
GAP, BOTTOM, LABEL, AFTER = 44, 62, 14, 20  # pixels; the last one between an axis's end and the names on its right
TIMES = 270  # pixels: the least height of the lines' panel
MOST_LINES = 9  # of more, nobody could follow one
NETWORKS = "networks"  # the setting whose figure shows a network's share of a step
PEAK = "Peak: a network's matrix products alone at the fastest units' measured rate; float32 is made on them too."
SEEN = 3  # pixels: the least length of a whisker
COUNTED = {"hidden": "hidden units", "networks": "networks"}  # settings that are a number of something
FIRST, NAMED = 16, 76  # pixels from the axis to its first value; with room for a name on the left
NEAR, BESIDE = 7, 14  # pixels: lines that are no farther apart bear no name; from a dot to its name
SAMPLE = 18  # pixels of a line, beside its name
# Of lines of one colour, the first unbroken; of references, all broken.
RUNG_DASHES, REFERENCE_DASHES = ("", "8 3", "2 3", "8 3 2 3", "4 2"), (DASHES, "2 3", "10 3 2 3", "12 4")
WIDE_RANGE = 8.0  # largest by smallest value; from here on the axis is logarithmic


@dataclass(frozen=True)
class Axis:
    """The horizontal axis: a setting and the place of each of its values."""

    key: str
    places: dict[str, float]  # by value in words, in drawing order
    is_log: bool
    is_line: bool = True  # the values have an order, and a line from one to the next means something
    left: float = WIDE.left + FIRST  # pixels: its first and its last value
    right: float = WIDE.right - FIRST

    def place(self, point: Point) -> float:
        """The place of a study's point, in pixels."""
        at = [math.log(place) if self.is_log else place for place in self.places.values()]
        own = at[list(self.places).index(value_text(point.values[self.key]))]
        return self.left + (own - min(at)) / ((max(at) - min(at)) or 1.0) * (self.right - self.left)


@dataclass(frozen=True)
class Trend:
    """A stage's line: a spread at each place, None where a time is missing, and places to draw as rings."""

    name: str
    colour: Colour
    spreads: list[tuple[float, Spread | None]]
    rings: frozenset[float] = frozenset()
    dash: str = ""
    width: float = 1.4
    aside: str = ""  # after its name and last value
    is_peak: bool = False  # of a rate that a unit allows, not of a stage

    @property
    def last(self) -> tuple[float, float]:
        """The last place with a value, and the value."""
        return [(place, spread.median) for place, spread in self.spreads if spread][-1]


def step_time(
    results: StudyResults, axis: Axis, points: Sequence[Point], where: str = "", chart: ChartLayout = FILE
) -> Canvas:
    """The figure: a line a stage or, of more than nine, the fastest rung and reference of each class of precision.

    References have broken lines. A missing time interrupts a line; a point that was measured without the stage does
    not. Whiskers reach from the fastest to the slowest run. A ring marks a time that was taken while disturbed. Stages
    on several GPUs have thick lines. Names stand on the right or, where `chart` is for a phone, below.
    """
    stages = [stage for stage in results.stages() if any(step_us(results.at(point, stage.name)) for point in points)]
    winners = [winner for winner in point_winners(results) if winner.point in points]
    is_contest = len(stages) > MOST_LINES and axis.key != NETWORKS
    layout = NARROW if chart.words is None else CONTEST if is_contest else WIDE
    first = NAMED if layout is CONTEST else FIRST
    axis = replace(axis, left=layout.left + first, right=layout.right - FIRST)
    run = results.runs[points[0].name]
    gpus = dict.fromkeys(gpus_name(results.runs[point.name]) for point in points)
    about = ", ".join(filter(None, (where, _fixed(results, points), dataset_name(run.problem), *gpus)))
    several = _several(results, points) if len(stages) <= MOST_LINES else ""
    effect = "" if winners else largest_effect(results, points, spread=False).replace("`", "")
    found = several or effect or _found(axis, winners)
    has_energy = any(energies(results.runs[point.name]) for point in points)
    of = "Time of a step" if has_energy else results.study.title
    timed = [stage for point in points for stage in results.runs[point.name].stages if step_us(stage)]
    aside = ", disturbed by other work" * all(map(is_disturbed, timed))
    heading = Heading(found or results.study.title, (f"{of}: {about}" if found else about) + aside, layout.width)
    trends: list[Trend] = []
    texts = {point.name: _value(results, axis, point, points) for point in points}
    values_at = {axis.place(point): texts[point.name] for point in points}
    step = "step and network" if axis.key == NETWORKS else "step"
    fights = grouped((one.lead.precision, Contest(axis.place(one.point), one)) for one in winners)
    contests = fights if is_contest else {}
    named = next(iter(fights.values()), []) if axis.key == NETWORKS else []
    rungs = [stage for stage in stages if stage.group != "reference"]
    if contests:
        keys = [Key("the fastest reference", "reference", shape="ring")]
        keys += regime_keys(winner.lead.stage for winner in winners)
        said = note([one for ones in contests.values() for one in ones])
        said += " No joule is drawn here: each point has its own figure of energy." * has_energy
    else:
        trends = _times(results, axis, points, stages)
        keys = [replace(key, shape="line") for key in regime_keys(rungs)]
        keys += [Key("a reference", "reference", shape="dashes")] * (len(rungs) < len(stages))
        keys += [Key(f"on {run.problem.gpus} GPUs", "faint", shape="thick")] * bool(several)
    top = heading.bottom + KEY_LINE * len(key_lines(keys, layout.width)) + layout.top
    bottom = top + (len(contests) * (HEIGHT + GAP) - GAP if contests else max(TIMES, LABEL * len(trends)))
    spreads = [spread for line in trends for _, spread in line.spreads if spread]
    if trends:
        ends = [end for spread in spreads for end in (spread.min, spread.max)]
        scale = Scale.log([min(ends) / 1.15, max(ends) * 1.15], bottom, top, number)
        marks = {
            "Whiskers: fastest to slowest run.": any(_whisker(spread, scale) for spread in spreads),
            "Ring: other work disturbed every process.": any(one.rings for one in trends),
            PEAK: any(one.is_peak for one in trends),
        }
        marked = [words for words, is_drawn in marks.items() if is_drawn]
        said = " ".join([note(named)] * bool(named) + marked + [*_unlike(results, texts, points, stages)])
    notes = folded(said, layout.width - 2 * MARGIN, "small")
    height = bottom + BOTTOM + LABEL * len(trends) * (layout is NARROW) + LINE * len(notes)
    canvas = Canvas(layout.width, height, f"{results.study.title}: {about}", _description(step, trends, contests))
    heading.draw(canvas)
    legend(canvas, keys, heading.bottom + 4)
    for index, (precision, ones) in enumerate(contests.items()):
        at = top + index * (HEIGHT + GAP)
        words = f"{precision}: us per {step}, log scale (lower is faster)"
        box = layout.left, at, layout.right, at + HEIGHT
        draw_contests(canvas, ones, words, box, is_line=axis.is_line, is_narrow=layout is NARROW)
        for place in values_at.keys() - {one.place for one in ones}:
            for line, missing in enumerate((f"no {precision} rung", "to compare")):
                baseline = at + HEIGHT / 2 + LINE * line
                middle = max(place, layout.left + text_width(missing, "small") / 2)
                canvas.text(middle, baseline, missing, "faint", anchor="middle", look="small halo")
    if trends:
        canvas.text(12, top - 12, f"us per {step}, log scale (lower is faster)", "faint", look="small")
        _panel(canvas, trends, scale, values_at, named, layout)
    _bottom(canvas, axis, values_at, bottom)
    draw_lines(canvas, notes, height - MARGIN - LINE * (len(notes) - 1))
    return canvas


def _several(results: StudyResults, points: Sequence[Point]) -> str:
    """The largest and the smallest gain of several GPUs over the fastest stage on one; empty without two points.

    Such as `The fastest on 2 GPUs is 1.53x as fast as the fastest on one at batch size 32768, 1.09x at batch size 16`.
    """
    scaled = [one for one in scalings(results) if one.point in points]
    best = [min(ones, key=lambda one: one.us) for ones in grouped((one.point.name, one) for one in scaled).values()]
    least, most = (pick(best, key=lambda one: one.best_us / one.us, default=None) for pick in (min, max))
    if least is None or most is None or least is most:
        return ""
    gain = numbers.ratio(most.best_us / most.us)
    told = f"The fastest on {most.gpus} GPUs is {gain} as fast as the fastest on one at {point_text(most.point)}"
    return f"{told}, {numbers.ratio(least.best_us / least.us)} at {point_text(least.point)}"


def _found(axis: Axis, winners: Sequence[PointLead]) -> str:
    """The greatest and the least lead of the first class of precision, with their places; empty for a point alone.

    Such as `In float32 the fastest rung is 2.26x (batch size 64) to 4.93x (batch size 1) as fast as the fastest
    reference`.
    """
    own = [winner for winner in winners if winner.lead.precision == winners[0].lead.precision]
    least, most = (pick(own, key=lambda one: one.lead.ratio.times, default=None) for pick in (min, max))
    if least is None or most is None or least is most:
        return ""
    both = " to ".join(_lead(axis.key, winner) for winner in (least, most))
    return f"In {most.lead.precision} the fastest rung is {both} as fast as the fastest reference"


def _lead(key: str, winner: PointLead) -> str:
    """A lead with its point: `2.26x* (2048 hidden units)`, `0.98x (batch size 16, within noise)`."""
    value, ratio = winner.point.values[key], winner.lead.ratio
    is_number = key in COUNTED and value not in ([], [0])
    where = f"{value_text(value)} {COUNTED[key]}" if is_number else setting_text(key, value)
    where += f", {WITHIN_NOISE}" * ratio.is_noise
    return f"{numbers.ratio(ratio.times)}{'*' * winner.lead.on_gpu_time} ({where})"


def _value(results: StudyResults, axis: Axis, point: Point, points: Sequence[Point]) -> str:
    """The setting's value below the axis, with the batch size if that differs though it is not varied."""
    value = point.values[axis.key]
    batches = {results.runs[one.name].problem.batch_size for one in points}
    is_other = "batch_size" not in results.study.varied and len(batches) > 1
    batch = f", batch {results.runs[point.name].problem.batch_size}" * is_other
    return (value_text(value) if value != [] else setting_text(axis.key, value)) + batch


def _times(results: StudyResults, axis: Axis, points: Sequence[Point], stages: Sequence[StageResult]) -> list[Trend]:
    """A line a stage: rungs in the colour of their regime, references broken; over networks, the limit as well."""
    times: list[Trend] = []
    shown = [results.runs[point.name] for point in points]
    for stage in stages:
        asked = [(axis.place(point), results.at(point, stage.name)) for point in points]
        shares = [run.problem.networks if axis.key == NETWORKS else 1 for run in shown]
        spreads = [
            (place, _share(step_us(stage), networks))
            for (place, stage), networks in zip(asked, shares, strict=True)
            if stage is not None
        ]
        rings = frozenset(place for place, stage in asked if is_disturbed(stage))
        way = None if stage.group == "reference" else regime(stage)
        dashes, alike = RUNG_DASHES if way else REFERENCE_DASHES, [one for one in times if one.colour == COLOURS[way]]
        dash, width = dashes[len(alike) % len(dashes)], 2.6 if stage.takes_gpus else 1.4
        aside = f" on {shown[0].problem.gpus} GPUs" * bool(stage.takes_gpus)
        times.append(Trend(name_of(stage), COLOURS[way], spreads, rings, dash, width, aside))
    return times + (_peaks(results, axis, points) if axis.key == NETWORKS else [])


def _share(spread: Spread | None, networks: int) -> Spread | None:
    """A network's share of a step's time."""
    return Spread(spread.median / networks, spread.min / networks, spread.max / networks) if spread else None


def _peaks(results: StudyResults, axis: Axis, points: Sequence[Point]) -> list[Trend]:
    """The time of a network's products at the highest rate, from whose units float32 is made too."""
    peaks: dict[str, list[tuple[float, Spread | None]]] = {}
    for point in points:
        run = results.runs[point.name]
        units = Roof.of(run.limits).units if run.limits else {}
        if units:
            unit = max(units, key=units.__getitem__)
            us = run.problem.product_operations / run.problem.networks / units[unit] / 1e6
            name = f"peak of {numbers.precision(unit)} units"
            peaks.setdefault(name, []).append((axis.place(point), Spread(us, us, us)))
    return [Trend(name, "faint", limits, width=0.75, is_peak=True) for name, limits in peaks.items()]


def _panel(
    canvas: Canvas,
    lines: Sequence[Trend],
    scale: Scale,
    values_at: dict[float, str],
    leads: Sequence[Contest],
    layout: ChartLayout,
) -> None:
    """Lines with whiskers on a log axis, each with its name and its last value beside or below, and leads at points."""
    at_place = {(line.name, at): spread for line in lines for at, spread in line.spreads if spread}
    place, top, bottom = scale.place, scale.end, scale.begin
    scale.draw_beside(canvas, layout.left, layout.right)
    for at in values_at:
        canvas.line([(at, top), (at, bottom)], "grid")
    for line in lines:
        _line(canvas, line, scale)
    wanted = [place(line.last[1]) for line in lines]
    left, highest, room_below = layout.words or MARGIN, top, bottom - top
    if layout.words is None:
        highest, room_below = bottom + BOTTOM - 6, LABEL * (len(lines) - 1.0)
    for line, at in zip(lines, spread_apart(wanted, highest, room_below, LABEL), strict=True):
        last, value = line.last
        where = f" at {values_at[last]}" * (last < max(values_at))
        text = f"{line.name}  {numbers.microseconds(value)}{line.aside}{where}"
        if layout.words is not None:
            ends = [(last + 5, place(value)), (layout.right + 4, place(value)), (left - 4, at)]
            canvas.line(ends, "faint", width=0.5)
        canvas.line([(left - 2, at), (left - 2 + SAMPLE, at)], line.colour, width=line.width, dash=line.dash)
        canvas.text(left + SAMPLE + 2, at + 4, text, line.colour, look="small")
    _gaps(canvas, lines, scale)
    room, shown = Room((layout.left + 2, top, layout.right + AFTER, bottom)), ""
    for line in lines:
        for before, after in pairwise((at, place(spread.median)) for at, spread in line.spreads if spread):
            room.keep_free(before, after)
    if not leads:
        _name_apart(canvas, lines, scale, room)
    for lead in leads:
        at, name = lead.place, name_of(lead.of.lead.stage)
        words = f"{name}: {lead.words}" if name != shown else lead.words
        colour = COLOURS[regime(lead.of.lead.stage)]
        draw_name(canvas, room, (at, place(at_place[name, at].median)), words, colour, 1)  # below it lies no stage
        shown = name


def _name_apart(canvas: Canvas, lines: Sequence[Trend], scale: Scale, room: Room) -> None:
    """The name of each line that ends beside another of its colour, at its dot that lies farthest from every other."""
    dots = [{at: scale.place(spread.median) for at, spread in line.spreads if spread} for line in lines]
    ends = [scale.place(line.last[1]) for line in lines]
    for line, own, end in zip(lines, dots, ends, strict=True):
        if (
            sum(abs(end - other) < LABEL for other, one in zip(ends, lines, strict=True) if one.colour == line.colour)
            > 1
        ):
            others = [other for other in dots if other is not own]
            away = {
                at: min((other[at] - height for other in others if at in other), key=abs, default=math.inf)
                for at, height in own.items()
            }
            at = max(away, key=lambda place: abs(away[place]))
            way = -1 if away[at] > 0 else 1
            if abs(away[at]) > NEAR:  # else a name would seem another line's
                draw_name(canvas, room, (at, own[at]), line.name, line.colour, way, [(1, BESIDE)])


def _gaps(canvas: Canvas, lines: Sequence[Trend], scale: Scale) -> None:
    """What several GPUs gain at each point over the fastest on one: between the dots, or above both."""
    best: dict[bool, dict[float, float]] = {False: {}, True: {}}
    for line in lines:
        side = best[bool(line.aside)]
        for at, spread in line.spreads:
            if spread:
                side[at] = min(spread.median, side.get(at, math.inf))
    for at, us in best[False].items():
        if at in best[True]:
            top, bottom = sorted((scale.place(us), scale.place(best[True][at])))
            height = top - 9.0
            if bottom - top > LABEL + 8:
                canvas.line([(at, top + 4), (at, bottom - 4)], "grid", width=4)
                height = (top + bottom) / 2 + 4
            canvas.text(at, height, numbers.ratio(us / best[True][at]), anchor="middle", look="small bold halo")


def _whisker(spread: Spread, scale: Scale) -> bool:
    """Whether a spread is longer than its dot hides."""
    return scale.place(spread.min) - scale.place(spread.max) > SEEN


def _unlike(
    results: StudyResults, texts: dict[str, str], points: Sequence[Point], stages: Sequence[StageResult]
) -> Iterator[str]:
    """Which points differ from the others: in an epoch's steps, or in stages that were timed by one run alone."""
    most = grouped((results.runs[point.name].problem.max_steps, texts[point.name]) for point in points)
    for steps, places in most.items() if len(most) > 1 else ():
        if steps is not None:
            yield f"At {numbers.listing(places)}: epochs of at most {numbers.count(steps, 'step')}."
    every = [(texts[point.name], results.at(point, stage.name)) for stage in stages for point in points]
    once = grouped((at, name_of(one)) for at, one in every if one and one.timing and len(one.timing.runs_s) == 1)
    for at, names in once.items():
        yield f"One run at {at}: {numbers.brief(names)}."


def _line(canvas: Canvas, line: Trend, scale: Scale) -> None:
    """The line, its whiskers and dots."""
    place = scale.place
    for is_there, piece in groupby(line.spreads, key=lambda point: point[1] is not None):
        known = [(at, spread) for at, spread in piece if spread is not None]
        ends = [(at, place(spread.median)) for at, spread in known]
        if is_there and len(known) > 1:
            canvas.line(ends, line.colour, width=line.width, dash=line.dash)
        for at, spread in known:
            low, high = place(spread.min), place(spread.max)
            if _whisker(spread, scale):
                canvas.line([(at, low), (at, high)], line.colour)
                for height in (low, high):
                    canvas.line([(at - 3, height), (at + 3, height)], line.colour)
            if not line.is_peak:
                canvas.dot(at, place(spread.median), 3, line.colour, hollow=at in line.rings)


def _bottom(canvas: Canvas, axis: Axis, values_at: dict[float, str], bottom: float) -> None:
    """The values of the setting, on two lines if they would touch."""
    texts = sorted(values_at.items())
    width = max(len(text) for _, text in texts) * 6.6 + 6
    crowded = any(right - left < width for (left, _), (right, _) in pairwise(texts))
    for index, (at, text) in enumerate(texts):
        half = text_width(text, "small") / 2 + 2
        middle = max(half, min(at, canvas.width - half))
        canvas.text(middle, bottom + 16 + (12 if crowded and index % 2 else 0), text, anchor="middle", look="small")
    name = COUNTED.get(axis.key, setting(axis.key)) + ", log scale" * axis.is_log
    canvas.text((axis.left + axis.right) / 2, bottom + 43, name, "faint", anchor="middle", look="small")


def _description(step: str, times: Sequence[Trend], contests: dict[str, list[Contest]]) -> str:
    """The figure in words, for a reader who cannot see it."""
    if times:
        last = [f"{line.name} {numbers.microseconds(line.last[1])}" for line in times]
        return f"Microseconds per {step} at each stage's last point: {', '.join(last)}."
    leads = [
        f"{ones[-1].of.lead.stage.name} {ones[-1].words} as fast as {ones[-1].of.lead.reference.name}"
        for ones in contests.values()
    ]
    return f"Microseconds per {step} of the fastest rung and reference; at the last point: {', '.join(leads)}."


def axis_of(varied: Sequence[str], points: Sequence[Point]) -> Axis:
    """The axis of a study: the varied setting with the most values, placed by value if they are numbers."""
    key = max(varied, key=lambda name: len({value_text(point.values[name]) for point in points}))
    values = {value_text(point.values[key]): _number(point.values[key]) for point in points}
    numbers = [number for number in values.values() if number is not None]
    if len(set(numbers)) < len(values):  # words, or layers of different sizes: side by side
        return Axis(key, {text: float(index) for index, text in enumerate(values)}, is_log=False, is_line=False)
    places = {text: number for text, number in values.items() if number is not None}
    return Axis(key, places, is_log=min(numbers) > 0 and max(numbers) >= WIDE_RANGE * min(numbers))


def _number(value: object) -> float | None:
    """A value as a number: for hidden layers their common size; None for words or different sizes."""
    if isinstance(value, list):
        return float(value[0]) if len(set(value)) == 1 else None
    return float(value) if isinstance(value, int | float) else None


def _fixed(results: StudyResults, points: Sequence[Point]) -> str:
    """The network and batch size, as far as all points have the same."""
    varied, problems = results.study.varied, [results.runs[point.name].problem for point in points]
    first, batches = problems[0], {problem.batch_size for problem in problems}
    parts = [] if {"hidden", "depth"} & set(varied) else [first.network]
    if "hidden" in varied and "depth" not in varied and len(first.hidden) > 1 and len(set(first.hidden)) == 1:
        parts.append(numbers.count(len(first.hidden), "hidden layer"))
    widths = {width for problem in problems for width in problem.hidden}
    if "depth" in varied and "hidden" not in varied and len(widths) == 1:
        parts.append(f"hidden layers of {widths.pop()}")
    if "batch_size" not in varied and len(batches) == 1:
        parts.append(f"batch {batches.pop()}")
    return ", ".join(parts)
