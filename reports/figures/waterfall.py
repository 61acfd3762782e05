"""A waterfall from the first rung to the fastest one: the change of each rung on the way, part by part."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ladder.records.run import Results
from reports.facts import numbers
from reports.facts.launch_regimes import in_network
from reports.facts.ratios import WITHIN_NOISE
from reports.facts.time_breakdown import OPERATIONS, Change, Profiled
from reports.figures.canvas import Canvas
from reports.figures.chart import (
    FILE,
    KEY_LINE,
    LINE,
    MARGIN,
    ChartLayout,
    Heading,
    Key,
    Scale,
    draw_lines,
    folded,
    key_lines,
    legend,
    text_width,
)  # fmt: skip
from reports.figures.style import PIXELS, Colour, subject

SHOWN = 0.01  # share of the longest step: about what a bar shows; smaller changes are added up
SMALLER = "smaller changes"
KEYS = (Key("a rung's whole step", "step"), Key("time saved", "saved"), Key("time added", "added", shape="frame"))
AXIS = "microseconds per step"
SAYS = (
    "Below each rung: what changes up to the next one, by part of a step; profiles scaled to the timed steps, "
    f"rounded to add up. Changes below {numbers.share(SHOWN)} of the longest step are added up."
)
FUSED = f" {OPERATIONS['fused'].capitalize()}: several parts in one kernel each."
IN_FULL = {OPERATIONS["gemm"]: "matrix products"}
NOISE = Key(WITHIN_NOISE, "faint", shape="frame")


WIDE = ChartLayout(PIXELS, 190, 640, 0, top=0, row=0)  # with room for remarks on the right
PHONE = ChartLayout(344, MARGIN, 332, None, top=0, row=14)  # pixels of the line above each bar with its name and number


@dataclass(frozen=True)
class Bar:
    """A bar from one time to another, in microseconds per step; a whole step begins at 0."""

    name: str
    begin: float
    end: float
    number: str  # a step's time, or a change with the decimals of the step before
    is_step: bool = False  # a rung's whole step, not the change of one part
    remark: str = ""
    is_noise: bool = False  # a change that may be none

    @property
    def colour(self) -> Colour:
        """A whole step's, or that of time saved or added, or of neither for sure."""
        if self.is_noise:
            return NOISE.colour
        return "step" if self.is_step else "added" if self.end > self.begin else "saved"

    def height(self, layout: ChartLayout) -> float:
        """Pixels, with what stands above the bar."""
        return (25 if self.is_step else 17) + layout.row * (2 if self.remark else 1)


def drawn(results: Results, way: Sequence[Change], chart: ChartLayout = FILE) -> Canvas:
    """A way of at least one change as bars from time to time; names stand above them where `chart` is for a phone."""
    layout = WIDE if chart.words is not None else PHONE
    steps = list(bars(way))
    keys = [key for key in (*KEYS, NOISE) if any(bar.colour == key.colour for bar in steps)]
    says = SAYS + FUSED * any(bar.name == OPERATIONS["fused"] for bar in steps)
    foot = folded(says, layout.width - 2 * MARGIN, "small")
    heading = Heading(_title(way, steps, results), subject(results), layout.width, "bold")
    top = heading.bottom + KEY_LINE * len(key_lines(keys, layout.width)) + 18
    bottom = top + sum(bar.height(layout) for bar in steps) + 4
    name = f"{heading.title}, {heading.subject}"
    canvas = Canvas(layout.width, bottom + 44 + LINE * len(foot), name, _description(way))
    heading.draw(canvas)
    legend(canvas, keys, heading.bottom + 4)
    ends = [0.0, *(end for bar in steps for end in (bar.begin, bar.end))]
    scale = Scale.linear(ends, layout.left, layout.right)
    scale.draw_below(canvas, top - 8, bottom)
    for bar in steps:
        _draw(canvas, bar, top, scale, in_network(bar.name, results.problem), layout)
        top += bar.height(layout)
    canvas.text(layout.left, bottom + 34, AXIS, "faint", look="small")
    draw_lines(canvas, foot, bottom + 54)
    return canvas


def _title(way: Sequence[Change], steps: Sequence[Bar], results: Results) -> str:
    """Both ends, the part that a rung saved most of, and what that rung saved in all, with the bars' decimals."""
    first, last = way[0].parent, way[-1].rung
    times = f"{numbers.microseconds(first.step_us)} to {numbers.microseconds(last.step_us)} us per step"
    most = min((bar for bar in steps if bar.colour == "saved"), key=lambda bar: bar.end - bar.begin, default=None)
    if most is None or most.name == SMALLER:
        return f"{times}: what changed on the way to {last.stage.name}"
    rung = next(bar.name for bar in steps[steps.index(most) :] if bar.is_step)
    before, after = next((one.parent.step_us, one.rung.step_us) for one in way if one.rung.stage.name == rung)
    net = numbers.change(numbers.rounded(after, after) - numbers.rounded(before, before), min(before, after))
    part = in_network(most.name, results.problem)
    return f"{times}: {rung} saves most, {most.number.lstrip('-')} us of {part}, {net.lstrip('-')} us net"


def bars(way: Sequence[Change]) -> Iterator[Bar]:
    """The bars from top to bottom, without rungs whose next one is within the noise of its parent too.

    Small parts of a change are added up. So that the numbers add up, those of parts have the decimals of the shorter
    step, and the smaller ones hold what rounding leaves.
    """
    yield _step(way[0].parent, "")
    least_us = SHOWN * max(change.slower_us for change in way)
    noisy, shown = 0, way[0].parent
    for change, later in zip(way, [*way[1:], None], strict=True):
        noisy = noisy + 1 if change.is_noise else 0
        if noisy and later is not None and later.is_noise:
            continue
        before, after, rung = shown.step_us, change.rung.step_us, change.rung.stage
        finer, at = min(before, after), before
        left = numbers.rounded(after, after) - numbers.rounded(before, before)
        if noisy:
            remark = f"{'each ' * (noisy > 1)}{WITHIN_NOISE} of its parent"
            several = numbers.count(noisy, "rung")
            yield Bar(several, before, after, numbers.change(left, finer), remark=remark, is_noise=True)
        target = f"to {rung.name}"
        for name, end in () if noisy else _parts(change, least_us):
            moved = left if name == SMALLER else numbers.rounded(end - at, finer)
            if name != SMALLER or numbers.rounded(moved, finer):
                yield Bar(IN_FULL.get(name, name), at, end, numbers.change(moved, finer), remark=target)
                target = ""
            at, left = end, left - moved
        shown = change.rung
        changed = rung.precision != change.parent.stage.precision
        yield _step(change.rung, f"now in {numbers.precision(rung.precision)}" * changed)


def _step(rung: Profiled, remark: str) -> Bar:
    number = numbers.microseconds(rung.step_us)
    return Bar(rung.stage.name, 0.0, rung.step_us, number, is_step=True, remark=remark)


def _parts(change: Change, least_us: float) -> Iterator[tuple[str, float]]:
    """Where each part that changed so much ends, then the sum of all others, which ends at the rung's time."""
    at = change.parent.step_us
    for name, us in change.detailed_us.items():
        if abs(us) >= least_us:
            yield name, (at := at + us)
    yield SMALLER, change.rung.step_us


def _draw(canvas: Canvas, bar: Bar, top: float, scale: Scale, name: str, layout: ChartLayout) -> None:
    """A bar with its name and its number."""
    left, right = sorted((scale.place(bar.begin), scale.place(bar.end)))
    above = layout.row * (2 if bar.remark else 1)
    thick, baseline, look = (18, 17, "bold") if bar.is_step else (12, 12, "small")
    box = (left, top + above + (3 if bar.is_step else 2), max(right - left, 1), thick)
    if not bar.is_step and not layout.row:
        canvas.line([(scale.place(bar.begin), top + above - 2), (scale.place(bar.begin), top + above + 3)], "faint")
    canvas.rectangle(*box, bar.colour, hollow=bar.colour in ("added", NOISE.colour))
    names: tuple[Colour, str] = ("ink", "mono bold halo") if bar.is_step else ("faint", "small halo")
    if layout.row:
        canvas.text(layout.left, top + 12, name, names[0], look=names[1])
        canvas.text(layout.right, top + 12, bar.number, anchor="end", look=f"{look} halo")
        canvas.text(layout.left, top + 12 + layout.row, bar.remark, look="small halo")
        return
    canvas.text(layout.left - 10, top + baseline, name, names[0], anchor="end", look=names[1].removesuffix(" halo"))
    canvas.text(right + 6, top + baseline, bar.number, look=f"{look} halo")
    width, beside = text_width(bar.remark, "small"), right + 14 + text_width(bar.number, "bold")
    if bar.is_step and right - left > width + 16:
        beside = left + 8
    elif beside + width > layout.width - MARGIN:
        beside = left - 8 - width
    canvas.text(beside, top + baseline, bar.remark, look=f"small{' halo' * (beside != left + 8)}")


def _description(way: Sequence[Change]) -> str:
    """The way in a sentence, for a reader who cannot see it."""
    steps = [f"{way[0].parent.stage.name} {numbers.microseconds(way[0].parent.step_us)}"]
    steps += [f"{change.rung.stage.name} {numbers.microseconds(change.rung.step_us)}" for change in way]
    return f"Microseconds per step on the way to the fastest rung: {', '.join(steps)}."
