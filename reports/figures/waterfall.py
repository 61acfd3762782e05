"""A waterfall from the first rung to the fastest one: the change of each rung on the way, part by part."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ladder.records.run import Results
from reports.facts import numbers
from reports.facts.time_breakdown import OPERATIONS, Change, Profiled
from reports.figures.canvas import Canvas, round_step
from reports.figures.style import OPERATION_COLOURS, PART_COLOURS, PIXELS, Colour, subject

LEFT, RIGHT = 190, 730  # pixels: the axis; names stand on its left, the longest bar's number on its right
LETTER = 6.5  # pixels
TOP, STEP, PART, BOTTOM = 92, 25, 17, 44
PALE = 0.4  # of a part that takes longer than before
SHOWN = 0.01  # share of the parent's step; smaller changes are added up
SMALLER, REST = "smaller changes", "rest"
KEY: tuple[tuple[str, Colour, float], ...] = (
    ("a rung's whole step", "step", 1.0), ("a part: time saved", "gemm", 1.0), ("time added", "gemm", PALE),
)  # fmt: skip
BAR_COLOURS: dict[str, Colour] = {
    **{name: OPERATION_COLOURS[kind] for kind, name in OPERATIONS.items()},
    **PART_COLOURS,
    SMALLER: "other",
    REST: "other",
}


@dataclass(frozen=True)
class Bar:
    """A bar from one time to another, in microseconds a step; a whole step begins at 0."""

    name: str
    begin: float
    end: float
    is_step: bool = False  # a rung's whole step, not the change of one part
    remark: str = ""


def drawn(results: Results, way: Sequence[Change]) -> Canvas:
    """A way of at least one change as bars from time to time."""
    steps = list(bars(way))
    low, high = (pick(end for bar in steps for end in (0.0, bar.begin, bar.end)) for pick in (min, max))
    bottom = TOP + sum(STEP if bar.is_step else PART for bar in steps) + 4
    first, last = way[0].parent, way[-1].rung
    title = (
        f"From {numbers.microseconds(first.step_us)} to {numbers.microseconds(last.step_us)} us a step: "
        f"what each rung on the way to {last.stage.name} changed"
    )
    canvas = Canvas(PIXELS, bottom + BOTTOM, f"{title}, {subject(results)}", _description(way))
    canvas.text(12, 24, title, look="bold")
    canvas.text(12, 42, subject(results), "faint")
    _key(canvas)

    def place(us: float) -> float:
        return LEFT + (us - low) / (high - low) * (RIGHT - LEFT)

    for value in _ticks(low, high):
        canvas.line([(place(value), TOP - 8), (place(value), bottom)], "grid")
        canvas.text(place(value), bottom + 15, f"{value:,g}", "faint", anchor="middle", look="small")
    top = float(TOP)
    for bar in steps:
        thick = STEP if bar.is_step else PART
        if not bar.is_step:
            canvas.line([(place(bar.begin), top - 2), (place(bar.begin), top + 3)], "faint")
        _draw(canvas, bar, top, (place(bar.begin), place(bar.end)), first.step_us)
        top += thick
    foot = "us/step. Below each step: how each part changes on the way to the next rung, fitted to the timed steps."
    canvas.text(12, bottom + 35, foot, "faint", look="small")
    return canvas


def _key(canvas: Canvas) -> None:
    """What the bars mean."""
    at = float(LEFT)
    for words, colour, opacity in KEY:
        canvas.rectangle(at, 57, 22, 11, colour, opacity=opacity)
        canvas.text(at + 28, 67, words, "faint", look="small")
        at += 28 + LETTER * len(words) + 22


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


def _draw(canvas: Canvas, bar: Bar, top: float, ends: tuple[float, float], slowest: float) -> None:
    """A bar with its name and its number: a step's time, or a change with the decimals of the slowest step."""
    left, right = min(ends), max(ends)
    if bar.is_step:
        canvas.rectangle(left, top + 3, right - left, STEP - 7, "step")
        canvas.text(LEFT - 10, top + 17, bar.name, anchor="end", look="mono bold")
        canvas.text(right + 6, top + 17, numbers.microseconds(bar.end), look="bold halo")
        if bar.remark:
            inside = right - left > LETTER * len(bar.remark) + 16
            canvas.text(left + 8 if inside else right + 56, top + 17, bar.remark, "ink", look="small")
        return
    fade = PALE if bar.end > bar.begin else 1.0
    canvas.rectangle(left, top + 2, max(right - left, 1), PART - 5, BAR_COLOURS[bar.name], opacity=fade)
    canvas.text(LEFT - 10, top + 12, bar.name, "faint", anchor="end", look="small")
    canvas.text(right + 6, top + 12, numbers.change(bar.end - bar.begin, slowest), look="small halo")


def _ticks(low: float, high: float) -> list[float]:
    """Round times on the axis, four to nine of them."""
    step = round_step(high - low, 9)
    return [step * index for index in range(int(low // step) + 1 if low < 0 else 0, int(high // step) + 1)]


def _description(way: Sequence[Change]) -> str:
    """The way in a sentence, for a reader who cannot see it."""
    steps = [f"{way[0].parent.stage.name} {numbers.microseconds(way[0].parent.step_us)}"]
    steps += [f"{change.rung.stage.name} {numbers.microseconds(change.rung.step_us)}" for change in way]
    return f"Microseconds a training step on the way to the fastest rung: {', '.join(steps)}."
