"""The parts of a chart: headings, scales with ticks, legends, rows of dots with an arrow, and labels beside them.

Figures are made of these parts; none of them knows what is measured.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import pairwise
from typing import Literal

from reports.figures.canvas import Canvas, round_step
from reports.figures.style import PIXELS, Colour

EDGE = 22  # pixels on the left of the least dot
MOST_TICKS, APART, BESIDE_TICK = 12, 26, 8  # pixels; the last one lies between the numbers of two ticks
WIDEST_NUMBER = 60  # pixels: with the space around it
GROUP = 30  # pixels: the height of a group's heading
BESIDE_AXIS = 14  # pixels between a name and the axis
HEAD = 7  # pixels: the length of an arrow's head
TINT = 0.45  # opacity behind the row that the title names
HIDDEN = 2  # pixels on both sides of a dot's centre, where it covers the band of its spread
RADIUS = 4.5
POWERS = range(-12, 10)  # of ten: the ticks of a log scale
ONE_LINE = 48  # pixels: the height of a heading that is not folded
MARGIN, LINE, KEY_LINE, SWATCH = 12, 17, 18, 11  # pixels: beside text, a line of text, a line of a legend, a swatch
SECOND_LINE, SECOND_ON_PHONE = 10, 16  # pixels that a row grows by, for its speedup
SIZES = {"small": 11, "large": 15}
WIDE_LETTERS, NARROW_LETTERS = frozenset("mwMW_%@…▸"), frozenset(" .,:;'|!ijlftr()[]-I")
Shape = Literal["bar", "frame", "dot", "ring", "line", "thick", "dashes"]
Box = tuple[float, float, float, float]
Point = tuple[float, float]


@dataclass(frozen=True)
class ChartLayout:
    """The places of a chart of rows in pixels, and what it shows."""

    width: float
    left: float  # where the axis begins
    right: float  # where it ends
    words: float | None  # where the words begin, after the numbers; None: both names and numbers stand above their rows
    top: float
    row: float  # the height of a row that names no parent
    is_page: bool = False  # every rung, each a link to its place on the page, under a title of the page's own
    has_references: bool = True  # above the rungs
    has_words: bool = True  # on the right of the rows
    page: str = ""  # the address of that page, unless the picture is in it
    lines: tuple[float, ...] = ()  # where vertical lines run through all rows

    def fitted(self, names: Iterable[str]) -> ChartLayout:
        """The layout with room on the left for all names; a page shows them in larger letters."""
        widest = max(text_width(name, "mono") for name in names) * (13 / 12 if self.is_page else 1)
        return self if self.words is None else replace(self, left=max(self.left, MARGIN + widest + BESIDE_AXIS))


FILE = ChartLayout(PIXELS, 160, 470, 542, top=84, row=22)
BESIDE = ChartLayout(420, 100, 350, 420, top=84, row=22, has_references=False, has_words=False)  # one of two
PAGE = ChartLayout(1000, 168, 596, 668, top=36, row=25, is_page=True)
PHONE = ChartLayout(344, 8, 336, None, top=36, row=42, is_page=True)
NARROW = ChartLayout(344, 12, 332, None, top=84, row=40)


def text_width(words: str, look: str = "") -> float:
    """The most pixels that a text of this look takes."""
    size = next((pixels for name, pixels in SIZES.items() if name in look), 12)
    if "mono" in look:
        return 0.61 * size * len(words)
    ems = sum(map(_ems, words))
    return ems * size * (1.1 if "bold" in look else 1.0)


@cache
def _ems(letter: str) -> float:
    """A letter's width, in those of its font's size."""
    return 1.0 if letter in WIDE_LETTERS else 0.42 if letter in NARROW_LETTERS else 0.78 if letter.isupper() else 0.64


def folded(words: str, width: float, look: str = "") -> list[str]:
    """A text as one line, or as several that are no wider than this."""
    lines = [""]
    for word in words.split(" "):
        longer = f"{lines[-1]} {word}".strip()
        if lines[-1] and text_width(longer, look) > width:
            lines.append(word)
        else:
            lines[-1] = longer
    return lines


def draw_lines(canvas: Canvas, lines: Sequence[str], top: float, colour: Colour = "faint", look: str = "small") -> None:
    """Lines of text, the first with its baseline at `top`."""
    for index, line in enumerate(lines):
        canvas.text(MARGIN, top + LINE * index, line, colour, look=look)


@dataclass(frozen=True)
class Heading:
    """The title of a figure and, below it, its subject; both are folded to its width."""

    title: str
    subject: str
    width: float = PIXELS
    look: str = "bold large"
    colour: Colour = "ink"

    @property
    def titles(self) -> list[str]:
        """The title by lines, which are as few and then as even as can be."""
        width = self.width - 2 * MARGIN
        lines = folded(self.title, width, self.look)
        while len(narrower := folded(self.title, width := width * 0.97, self.look)) == len(lines) > 1:
            lines = narrower
        return lines

    @property
    def subjects(self) -> list[str]:
        """The subject by lines."""
        return folded(self.subject, self.width - 2 * MARGIN)

    @property
    def bottom(self) -> float:
        """The pixel where the heading ends: `ONE_LINE` if neither is folded."""
        return 14 + LINE * (len(self.titles) + len(self.subjects))

    def draw(self, canvas: Canvas) -> None:
        """Write both at the top of a figure."""
        draw_lines(canvas, self.titles, 24, self.colour, self.look)
        draw_lines(canvas, self.subjects, 25 + LINE * len(self.titles), look="")


@dataclass(frozen=True)
class Key:
    """An entry of a legend: a swatch of its colour, and what the colour means."""

    words: str
    colour: Colour
    opacity: float = 1.0
    shape: Shape = "bar"


def key_lines(keys: Sequence[Key], width: float = PIXELS) -> list[list[Key]]:
    """The entries of a legend by lines that fit a figure of this width."""
    lines: list[list[Key]] = []
    room = 0.0
    for key in keys:
        if not lines or room < _key_width(key):
            lines.append([])
            room = width - MARGIN
        lines[-1].append(key)
        room -= _key_width(key)
    return lines


def _key_width(key: Key) -> float:
    return text_width(key.words, "small") + SWATCH + 22


def legend(canvas: Canvas, keys: Sequence[Key], top: float) -> None:
    """The entries with their swatches, from the pixel `top` on: `KEY_LINE` for each of `key_lines`."""
    for number, line in enumerate(key_lines(keys, canvas.width)):
        at, middle = float(MARGIN), top + KEY_LINE * (number + 0.5)
        for key in line:
            swatch(canvas, key, at, middle)
            canvas.text(at + SWATCH + 6, middle + 4, key.words, "faint", look="small")
            at += _key_width(key)


def swatch(canvas: Canvas, key: Key, left: float, middle: float) -> None:
    """The sample of a colour, as wide as `SWATCH`."""
    if key.shape in ("dot", "ring"):
        canvas.dot(left + SWATCH / 2, middle, RADIUS, key.colour, hollow=key.shape == "ring")
    elif key.shape in ("line", "thick", "dashes"):
        ends, dash = [(left, middle), (left + SWATCH, middle)], "4 3" * (key.shape == "dashes")
        canvas.line(ends, key.colour, width=4 if key.shape == "thick" else 2, dash=dash)
    else:
        box = (left, middle - SWATCH / 2, SWATCH, SWATCH)
        if key.colour == "idle":  # nearly the page's colour
            canvas.rectangle(left - 1, middle - SWATCH / 2 - 1, SWATCH + 2, SWATCH + 2, "faint")
        canvas.rectangle(*box, key.colour, opacity=key.opacity, hollow=key.shape == "frame")


def number(value: float) -> str:
    """The number of a tick: `1,000`."""
    return f"{value:,g}"


@dataclass(frozen=True)
class Scale:
    """From values to pixels between two places, in proportion to the values or to their logarithms."""

    begin: float  # the pixel of the least value
    end: float
    low: float  # the values at these pixels, as logarithms if `is_log`
    high: float
    is_log: bool = True
    words: Callable[[float], str] = number  # of a tick
    apart: float = WIDEST_NUMBER  # pixels between ticks of a linear scale

    @classmethod
    def log(cls, values: Sequence[float], begin: float, end: float, words: Callable[[float], str] = number) -> Scale:
        """A log scale from the least to the greatest of these values."""
        return cls(begin, end, math.log(min(values)), math.log(max(values)), words=words)

    @classmethod
    def linear(cls, values: Sequence[float], begin: float, end: float, apart: float = WIDEST_NUMBER) -> Scale:
        """A linear scale from the least to the greatest of these values, with ticks at least so many pixels apart."""
        return cls(begin, end, min(values), max(values), is_log=False, apart=apart)

    @classmethod
    def with_room(cls, values: Sequence[float], begin: float, end: float, room: float) -> Scale:
        """A log scale that shows all these values, with so many pixels left of the least, and half of them beyond."""
        low, high = math.log(min(values)), math.log(max(values) * 1.12)
        pixel = (high - low) / (end - begin - 1.5 * room)
        return cls(begin, end, low - room * pixel, high + room / 2 * pixel)

    def place(self, value: float) -> float:
        """The pixel of a value."""
        at = math.log(value) if self.is_log else value
        return self.begin + (at - self.low) / (self.high - self.low) * (self.end - self.begin)

    def holds(self, value: float) -> bool:
        """Whether a value lies on the scale; rounding is forgiven."""
        return min(self.begin, self.end) - 0.1 <= self.place(value) <= max(self.begin, self.end) + 0.1

    def within(self, value: float) -> float:
        """The pixel of a value, at the scale's end for one beyond it."""
        return max(min(self.begin, self.end), min(self.place(value), max(self.begin, self.end)))

    def ticks(self) -> list[float]:
        """Round numbers on the scale, at most twelve: as fine as there is room for their labels."""
        if not self.is_log:
            most = max(2, min(MOST_TICKS, int(abs(self.end - self.begin) / self.apart)))
            step = round_step(self.high - self.low, most)
            every = [step * index for index in range(math.floor(self.low / step), math.ceil(self.high / step) + 1)]
            ticks = [value for value in every if self.holds(value)]
        for factors in ((1, 2, 3, 4, 5, 6, 7, 8, 9), (1, 2, 5), (1, 3), (1,)) if self.is_log else ():
            values = [factor * 10.0**power for power in POWERS for factor in factors]
            ticks = [value for value in values if self.holds(value)]
            if len(ticks) <= MOST_TICKS and self._has_room(ticks):
                break
        while not self._has_room(ticks) or len(ticks) > MOST_TICKS:
            ticks = ticks[::2]
        return ticks

    def _has_room(self, ticks: Sequence[float]) -> bool:
        """Whether no label comes too near to the next one, wherever on the figure the axis lies."""
        widths = [text_width(self.words(value), "small") for value in ticks]
        return all(
            abs(self.place(later) - self.place(earlier)) >= max(APART, sum(pair) / 2 + BESIDE_TICK)
            for (earlier, later), pair in zip(pairwise(ticks), pairwise(widths), strict=True)
        )

    def draw_below(self, canvas: Canvas, top: float, bottom: float) -> None:
        """The grid from top to bottom, and a horizontal axis with its numbers below it."""
        for value in self.ticks():
            at, words = self.place(value), self.words(value)
            canvas.line([(at, top), (at, bottom)], "grid")
            middle = min(at, canvas.width - text_width(words, "small") / 2 - 2)
            canvas.text(middle, bottom + 16, words, "faint", anchor="middle", look="small")
        canvas.line([(self.begin, bottom), (self.end, bottom)], "faint")

    def draw_beside(self, canvas: Canvas, left: float, right: float) -> None:
        """The grid from left to right, and the numbers of a vertical axis on its left."""
        for value in self.ticks():
            at = self.place(value)
            canvas.line([(left, at), (right, at)], "grid")
            canvas.text(left - 7, at + 4, self.words(value), "faint", anchor="end", look="small")


@dataclass(frozen=True)
class Mark:
    """A dot, and an arrow from the value that it is compared with; dotted where the dot's band holds that value.

    A value beyond the axis has its dot at the end.
    """

    value: float
    colour: Colour
    start: float | None = None  # where the arrow begins
    band: tuple[float, float] = (math.inf, -math.inf)  # where the value may lie, beside `start` if there is one
    is_hollow: bool = False

    @property
    def is_noise(self) -> bool:
        """Whether the difference is within the noise."""
        return self.start is not None and self.band[0] <= self.start <= self.band[1]


@dataclass(frozen=True)
class Row:
    """A row of a chart: a name, a mark, its number, the speedup with the name of the parent, and more words."""

    name: str
    value: str
    mark: Mark
    speedup: str
    words: str
    link: Mapping[str, str] = field(default_factory=dict)  # attributes; empty: none
    tip: str = ""  # where one points at the link
    colour: Colour = "faint"  # of the words
    is_best: bool = False  # the row that the title names
    parent: str = ""  # unless that is the row above: below the name where a layout has no words

    def height(self, layout: ChartLayout) -> float:
        """Pixels: higher if it shows a speedup, or a parent instead."""
        second = SECOND_LINE if layout.words is not None else SECOND_ON_PHONE
        return layout.row + (second if (self.speedup if layout.has_words else self.parent) else 0)

    def draw(self, canvas: Canvas, top: float, scale: Scale, layout: ChartLayout) -> None:
        """Draw the row below `top`; on a page, what was measured is one group."""
        with canvas.group("a", **self.link) if self.link else nullcontext():
            if self.tip:
                canvas.tip(self.tip)
            if self.link or self.is_best:
                canvas.rectangle(0, top, layout.width, self.height(layout), "grid", opacity=TINT * self.is_best)
            self._draw(canvas, top, scale, layout)

    def _draw(self, canvas: Canvas, top: float, scale: Scale, layout: ChartLayout) -> None:
        middle = top + self.height(layout) / 2
        measured = canvas.group(class_="measured") if layout.is_page else nullcontext()
        mono = "mono bold" if self.is_best else "mono"
        if layout.words is None:
            canvas.text(layout.left, top + 15, self.name, look=f"{mono} halo")
            with measured:
                draw_mark(canvas, self.mark, top + 29, scale)
                canvas.text(layout.right, top + 15, self.value, anchor="end", look="bold halo")
                canvas.text(layout.left, top + 47, self.speedup, "faint", look="small halo")
            return
        beside, parent = layout.left - BESIDE_AXIS, "" if layout.has_words else self.parent
        canvas.text(beside, middle + 4 - 5 * bool(parent), self.name, anchor="end", look=mono)
        canvas.text(beside, middle + 10, parent, "faint", anchor="end", look="small")
        aside = 6.5 if self.speedup and self.words else 0.0
        with measured:
            draw_mark(canvas, self.mark, middle, scale)
            canvas.text(layout.words - MARGIN, middle + 4, self.value, anchor="end", look="bold")
            if layout.has_words:
                canvas.text(layout.words, middle + 4 - aside, self.speedup, "ink", look="small")
        if layout.has_words:
            canvas.text(layout.words, middle + 4 + aside, self.words, self.colour, look="small")


@dataclass(frozen=True)
class RowChart:
    """Rows on one log axis, in groups: the heading of each, its colour and its rows."""

    groups: Sequence[tuple[str, Colour, Sequence[Row]]]
    title: str  # of the axis
    notes: Sequence[str]  # below the axis: how to read the picture
    ends: Sequence[float] = ()  # of the axis; without, those of its rows
    number: Callable[[float], str] = number  # of a tick

    @property
    def rows(self) -> list[Row]:
        """Those of all groups."""
        return [row for _, _, rows in self.groups for row in rows]

    def height(self, layout: ChartLayout) -> float:
        """Pixels of all groups."""
        return sum(GROUP * bool(words) for words, *_ in self.groups) + sum(row.height(layout) for row in self.rows)

    def foot(self, layout: ChartLayout) -> list[str]:
        """The notes by lines."""
        return [line for note in self.notes for line in folded(note, layout.width - 2 * MARGIN, "small")]

    def bottom(self, top: float, layout: ChartLayout) -> float:
        """The pixel where a picture ends whose rows begin at `top`."""
        return top + self.height(layout) + 44 + LINE * len(self.foot(layout))

    def axis(self, layout: ChartLayout) -> Scale:
        """The axis, which shows every mark."""
        if self.ends:
            return Scale.log(self.ends, layout.left, layout.right, self.number)
        ends = [end for row in self.rows for end in (row.mark.value, *row.mark.band) if math.isfinite(end)]
        return Scale.with_room(ends, layout.left, layout.right, EDGE)

    def draw(self, canvas: Canvas, top: float, axis: Scale, layout: ChartLayout) -> None:
        """The grid, each group below its heading, the axis, the notes and the legend."""
        bottom, notes = top + self.height(layout), self.foot(layout)
        axis.draw_below(canvas, top - 6, bottom)
        canvas.text(layout.left, bottom + 34, self.title, "faint", look="small")
        draw_lines(canvas, notes, bottom + 52)
        widest = max(text_width(words, "bold") for words, *_ in self.groups)
        left = min(layout.left, max(MARGIN, layout.width - MARGIN - widest))  # of the groups' names
        for words, colour, rows in self.groups:
            begin = top
            top += GROUP * bool(words)
            for row in rows:
                row.draw(canvas, top, axis, layout)
                top += row.height(layout)
            plate(canvas, left, begin + 19, words, "bold", lines=layout.lines)
            canvas.text(left, begin + 19, words, colour, look="bold halo")

    def canvas(self, heading: Heading, height: float, layout: ChartLayout) -> Canvas:
        """An empty picture whose description names every row, for a reader who cannot see it."""
        rows = ", ".join(f"{row.name} {row.value or row.words}" for row in self.rows)
        return Canvas(layout.width, height, f"{heading.title}: {heading.subject}", f"{self.title}: {rows}.")

    def drawn(self, heading: Heading, layout: ChartLayout) -> Canvas:
        """The whole picture; a page has the heading's words in its own place."""
        layout = layout.fitted(row.name for row in self.rows)
        top = layout.top if layout.is_page else heading.bottom + 14
        canvas = self.canvas(heading, self.bottom(top, layout), layout)
        if not layout.is_page:
            heading.draw(canvas)
        self.draw(canvas, top, self.axis(layout), layout)
        return canvas


def draw_mark(canvas: Canvas, mark: Mark, middle: float, scale: Scale) -> None:
    """Draw a dot with its arrow and its band."""
    at = scale.within(mark.value)
    if mark.start is not None:
        arrow(canvas, scale.within(mark.start), at, middle, mark.colour, is_noise=mark.is_noise)
    if math.isfinite(mark.band[0]):
        begin, end = map(scale.place, mark.band)
        if max(at - begin, end - at) > HIDDEN:
            canvas.rectangle(begin, middle - 4, end - begin, 8, mark.colour, opacity=0.3)
    canvas.dot(at, middle, RADIUS, mark.colour, hollow=mark.is_hollow)


def plate(canvas: Canvas, left: float, baseline: float, words: str, look: str, *, lines: Sequence[float]) -> None:
    """Paper behind words that begin at `left`, if a vertical line runs through them."""
    width = text_width(words, look)
    if words and any(left - 2 < line < left + width + 2 for line in lines):
        canvas.rectangle(left - 2, baseline - 11, width + 4, 15, "paper")


def arrow(canvas: Canvas, start: float, end: float, middle: float, colour: Colour, *, is_noise: bool) -> None:
    """An arrow that ends at the dot; dotted if the difference is within the noise, without a head if too short."""
    canvas.line([(start, middle), (end, middle)], colour, width=2, dash="2 3" if is_noise else "")
    way = 1 if end > start else -1
    tip = end - way * 5
    if not is_noise and abs(tip - start) > HEAD:
        canvas.polygon([(tip, middle), (tip - way * HEAD, middle - 4), (tip - way * HEAD, middle + 4)], colour)


@dataclass
class Room:
    """What labels must not cover within a rectangle; boxes are left, top, right, bottom."""

    within: Box
    marks: list[Box] = field(default_factory=list)  # dots and lines
    words: list[Box] = field(default_factory=list)

    def keep_free(self, begin: Point, end: Point) -> None:
        """Let no label cover a line."""
        self.marks += _pieces(begin, end)

    def is_free(self, box: Box) -> bool:
        """Whether a label lies within the rectangle and covers nothing."""
        left, top, right, bottom = self.within
        is_inside = box[0] >= left and box[1] >= top and box[2] <= right and box[3] <= bottom
        return is_inside and not any(meet(box, other) for other in (*self.marks, *self.words))

    def crosses_words(self, begin: Point, end: Point) -> bool:
        """Whether a line runs through a label."""
        return any(meet(piece, box) for piece in _pieces(begin, end) for box in self.words)


def _pieces(begin: Point, end: Point) -> list[Box]:
    """A line as small boxes."""
    steps = max(1, math.ceil(math.dist(begin, end) / 4))
    shares = (step / steps for step in range(steps + 1))
    points = (tuple(a + (b - a) * share for a, b in zip(begin, end, strict=True)) for share in shares)
    return [(x - 1, y - 1, x + 1, y + 1) for x, y in points]


def meet(one: Box, other: Box) -> bool:
    """Whether two boxes share an area."""
    return one[0] < other[2] and one[2] > other[0] and one[1] < other[3] and one[3] > other[1]


def spread_apart(wanted: Sequence[float], top: float, height: float, spacing: float) -> list[float]:
    """Heights for labels, as near as possible to the wanted ones and at least this far from each other."""
    order = sorted(range(len(wanted)), key=lambda index: wanted[index])
    places: list[float] = []
    for index in order:
        places.append(max(wanted[index], places[-1] + spacing if places else top))
    room = top + height
    for back in range(len(places) - 1, -1, -1):
        places[back] = min(places[back], room)
        room = places[back] - spacing
    return [place for _, place in sorted(zip(order, places, strict=True))]
