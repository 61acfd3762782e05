"""A chart with a log axis: its scale and ticks, rows of dots with a spread and an arrow, and labels beside them.

Figures are made of these parts; none of them knows what is measured.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from ladder.records.run import Spread
from reports.figures.canvas import Canvas
from reports.figures.style import Colour

ROOM = 74  # pixels on the left of the least dot, for its label
BESIDE = 44  # pixels on the right of a dot, for its label
MOST_TICKS, APART = 9, 26  # pixels
LETTER = 3.3  # pixels: half the mean width of a letter below the axis, and some of the gap between two numbers
HEAD = 7  # pixels: the length of an arrow's head
HIDDEN = 2  # pixels on both sides of a dot's centre, where it covers the band of its spread
RADIUS = 4.5
FARTHEST_TICK = 9  # powers of ten


@dataclass(frozen=True)
class LogAxis:
    """A log axis of values between two pixels."""

    left: float
    right: float
    low: float  # the logarithms of the values at these pixels
    high: float

    @classmethod
    def of(cls, values: Sequence[float], left: float, right: float, room: float) -> LogAxis:
        """An axis that shows all these values, with so many pixels left of the least."""
        low, high = math.log(min(values)), math.log(max(values) * 1.12)
        share = room / (right - left)
        return cls(left, right, low - (high - low) * share / (1 - share), high)

    def place(self, value: float) -> float:
        """The pixel of a value."""
        return self.left + (math.log(value) - self.low) / (self.high - self.low) * (self.right - self.left)

    def within(self, value: float) -> float:
        """The pixel of a value, at the axis's end for one beyond it."""
        return max(self.left, min(self.place(value), self.right))

    def ticks(self) -> list[float]:
        """Round numbers on the axis, at most nine: as fine as there is room for their labels."""
        for factors in ((1, 2, 3, 4, 5, 6, 7, 8, 9), (1, 2, 5), (1,)):
            values = [factor * 10.0**power for power in range(-3, FARTHEST_TICK) for factor in factors]
            ticks = [value for value in values if self.left <= self.place(value) <= self.right]
            if len(ticks) <= MOST_TICKS and self._has_room(ticks):
                break
        while not self._has_room(ticks):
            ticks = ticks[::2]
        return ticks

    def _has_room(self, ticks: Sequence[float]) -> bool:
        """Whether no label comes too near to the next one."""
        return all(
            self.place(later) - self.place(earlier) >= max(APART, LETTER * len(f"{earlier:,g}{later:,g}"))
            for earlier, later in pairwise(ticks)
        )

    def draw(self, canvas: Canvas, top: float, bottom: float) -> None:
        """The grid from top to bottom, and the axis with its numbers below it."""
        for value in self.ticks():
            canvas.line([(self.place(value), top), (self.place(value), bottom)], "grid")
            words = f"{value:,g}"
            middle = min(self.place(value), canvas.width - LETTER * len(words))
            canvas.text(middle, bottom + 16, words, "faint", anchor="middle", look="small")
        canvas.line([(self.left, bottom), (self.right, bottom)], "faint")


@dataclass(frozen=True)
class Mark:
    """A row of a chart: a dot with its spread, and an arrow from the value that it is compared with."""

    value: Spread
    start: float | None  # where the arrow begins
    colour: Colour
    is_noise: bool = False  # the difference: the arrow is dotted
    is_hollow: bool = False


def draw_mark(canvas: Canvas, mark: Mark, middle: float, axis: LogAxis) -> tuple[float, float]:
    """Draw a row, and return the pixels between which no label may stand."""
    at, begin, end = (axis.place(value) for value in (mark.value.median, mark.value.min, mark.value.max))
    reach = [begin, at - RADIUS, end, at + RADIUS]
    if mark.start is not None:
        start = axis.within(mark.start)
        arrow(canvas, start, at, middle, mark.colour, is_noise=mark.is_noise)
        reach.append(start)
    if max(at - begin, end - at) > HIDDEN:
        canvas.rectangle(begin, middle - 4, end - begin, 8, mark.colour, opacity=0.35)
    canvas.dot(at, middle, RADIUS, mark.colour, hollow=mark.is_hollow)
    return min(reach), max(reach)


def draw_label(
    canvas: Canvas, words: str, middle: float, at: float, covered: tuple[float, float], right: float
) -> None:
    """Words beside a dot at pixel `at`: on the left of what is covered.

    They stand on the right of it if an arrow or a spread is on the left, and they end before the pixel `right`.
    """
    low, high = covered
    on_the_right = low < at - 6 and high + BESIDE < right
    beside = high + 5 if on_the_right else low - 5
    canvas.text(beside, middle + 4, words, anchor="start" if on_the_right else "end", look="bold halo")


def arrow(canvas: Canvas, start: float, end: float, middle: float, colour: Colour, *, is_noise: bool) -> None:
    """An arrow that ends at the dot; dotted if the difference is within the noise, without a head if too short."""
    canvas.line([(start, middle), (end, middle)], colour, width=2, dash="2 3" if is_noise else "")
    way = 1 if end > start else -1
    tip = end - way * 5
    if not is_noise and abs(tip - start) > HEAD:
        canvas.polygon([(tip, middle), (tip - way * HEAD, middle - 4), (tip - way * HEAD, middle + 4)], colour)
