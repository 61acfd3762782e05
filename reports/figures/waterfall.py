"""A waterfall from the first rung to the fastest one: the change of each rung on the way, part by part."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ladder.records.run import Results
from reports.facts import numbers
from reports.facts.grouped import grouped
from reports.facts.time_breakdown import OPERATIONS, Change, Profiled
from reports.figures.canvas import Canvas
from reports.figures.chart import (
    KEY_LINE,
    LINE,
    MARGIN,
    Heading,
    Key,
    Scale,
    draw_lines,
    folded,
    key_lines,
    legend,
    text_width,
)  # fmt: skip
from reports.figures.style import OPERATION_COLOURS, PART_COLOURS, PIXELS, Colour, subject

SHOWN = 0.01  # share of the parent's step; smaller changes are added up
STEP_KEY, SMALLER, REST = "a rung's whole step", "smaller changes", "rest"
SAYS = (
    "Filled: time saved. Outlined: time added.",
    "us/step. Below each step: how each part changes on the way to the next rung, fitted to the timed steps.",
)
BAR_COLOURS: dict[str, Colour] = {
    **{name: OPERATION_COLOURS[kind] for kind, name in OPERATIONS.items()},
    **PART_COLOURS,
    SMALLER: "rest",
    REST: "rest",
}


@dataclass(frozen=True)
class BarsLayout:
    """The picture's places in pixels."""

    width: float
    left: float  # where the axis begins
    right: float  # where it ends
    names: float  # the height of the line above each bar with its name and number; 0: they stand beside it
    look: str = "bold"  # of the title


WIDE = BarsLayout(PIXELS, 190, 730, 0)
PHONE = BarsLayout(344, MARGIN, 332, 14)


@dataclass(frozen=True)
class Bar:
    """A bar from one time to another, in microseconds a step; a whole step begins at 0."""

    name: str
    begin: float
    end: float
    is_step: bool = False  # a rung's whole step, not the change of one part
    remark: str = ""

    @property
    def colour(self) -> Colour:
        """The colour of the whole step or of the part."""
        return "step" if self.is_step else BAR_COLOURS[self.name]

    def height(self, layout: BarsLayout) -> float:
        """Pixels, with what stands above the bar."""
        return (25 if self.is_step else 17) + layout.names * (2 if self.remark else 1)


def drawn(results: Results, way: Sequence[Change], layout: BarsLayout = WIDE) -> Canvas:
    """A way of at least one change as bars from time to time."""
    steps = list(bars(way))
    keys, first = list(_keys(steps)), way[0].parent
    says = [line for words in SAYS for line in folded(words, layout.width - 2 * MARGIN, "small")]
    heading = Heading(_title(way), subject(results), layout.width, layout.look)
    top = heading.bottom + KEY_LINE * len(key_lines(keys, layout.width)) + 18
    bottom = top + sum(bar.height(layout) for bar in steps) + 4
    name = f"{heading.title}, {heading.subject}"
    canvas = Canvas(layout.width, bottom + 26 + LINE * len(says), name, _description(way))
    heading.draw(canvas)
    legend(canvas, keys, heading.bottom + 4)
    ends = [0.0, *(end for bar in steps for end in (bar.begin, bar.end))]
    scale = Scale.linear(ends, layout.left, layout.right)
    scale.draw_below(canvas, top - 8, bottom)
    for bar in steps:
        _draw(canvas, bar, top, scale, first.step_us, layout)
        top += bar.height(layout)
    draw_lines(canvas, says, bottom + 36)
    return canvas


def _title(way: Sequence[Change]) -> str:
    first, last = way[0].parent, way[-1].rung
    times = f"{numbers.microseconds(first.step_us)} to {numbers.microseconds(last.step_us)}"
    return f"From {times} us a step: what changed on the way to {last.stage.name}"


def _keys(steps: Sequence[Bar]) -> Iterator[Key]:
    """What each drawn colour means."""
    yield Key(STEP_KEY, "step")
    there = {bar.name for bar in steps if not bar.is_step}
    for colour, names in grouped((colour, name) for name, colour in BAR_COLOURS.items() if name in there).items():
        yield Key(" or ".join(names), colour)


def bars(way: Sequence[Change]) -> Iterator[Bar]:
    """The bars from top to bottom; the parts of a change within the noise, and small ones, are added up."""
    yield _step(way[0].parent, "")
    for change in way:
        at = change.parent.step_us
        for name, us in _parts(change):
            yield Bar(name, at, at + us)
            at += us
        changed = change.rung.stage.precision != change.parent.stage.precision
        precision = f"from here on in {numbers.precision(change.rung.stage.precision)}" if changed else ""
        noise = f"within noise of {change.parent.stage.name}" if change.is_noise else ""
        yield _step(change.rung, "; ".join(filter(None, (precision, noise))))


def _step(rung: Profiled, remark: str) -> Bar:
    return Bar(rung.stage.name, 0.0, rung.step_us, is_step=True, remark=remark)


def _parts(change: Change) -> Iterator[tuple[str, float]]:
    """The parts that changed most, then the sum of the others, and what the parts leave of the timed difference."""
    if change.is_noise:
        return
    limit = SHOWN * change.slower_us
    parts = change.detailed_us
    yield from ((name, us) for name, us in parts.items() if abs(us) >= limit)
    smaller = sum(us for us in parts.values() if abs(us) < limit)
    for name, us in ((SMALLER, smaller), (REST, change.rest_us)):
        if abs(us) >= limit:
            yield name, us


def _draw(canvas: Canvas, bar: Bar, top: float, scale: Scale, slowest: float, layout: BarsLayout) -> None:
    """A bar with its name and its number: a step's time, or a change with the decimals of the slowest step."""
    left, right = sorted((scale.place(bar.begin), scale.place(bar.end)))
    above = layout.names * (2 if bar.remark else 1)
    number = numbers.microseconds(bar.end) if bar.is_step else numbers.change(bar.end - bar.begin, slowest)
    thick, baseline, look = (18, 17, "bold") if bar.is_step else (12, 12, "small")
    box = (left, top + above + (3 if bar.is_step else 2), max(right - left, 1), thick)
    if not bar.is_step and not layout.names:
        canvas.line([(scale.place(bar.begin), top + above - 2), (scale.place(bar.begin), top + above + 3)], "faint")
    canvas.rectangle(*box, bar.colour, hollow=not bar.is_step and bar.end > bar.begin)
    names: tuple[Colour, str] = ("ink", "mono bold halo") if bar.is_step else ("faint", "small halo")
    if layout.names:
        canvas.text(layout.left, top + 12, bar.name, names[0], look=names[1])
        canvas.text(layout.right, top + 12, number, anchor="end", look=f"{look} halo")
        canvas.text(layout.left, top + 12 + layout.names, bar.remark, look="small halo")
        return
    canvas.text(layout.left - 10, top + baseline, bar.name, names[0], anchor="end", look=names[1].removesuffix(" halo"))
    canvas.text(right + 6, top + baseline, number, look=f"{look} halo")
    inside = right - left > text_width(bar.remark, "small") + 16
    beside = left + 8 if inside else right + 14 + text_width(number, "bold")
    canvas.text(beside, top + baseline, bar.remark, look="small")


def _description(way: Sequence[Change]) -> str:
    """The way in a sentence, for a reader who cannot see it."""
    steps = [f"{way[0].parent.stage.name} {numbers.microseconds(way[0].parent.step_us)}"]
    steps += [f"{change.rung.stage.name} {numbers.microseconds(change.rung.step_us)}" for change in way]
    return f"Microseconds a training step on the way to the fastest rung: {', '.join(steps)}."
