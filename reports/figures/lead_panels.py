"""A panel of a study's figure: the fastest rung and the fastest reference at each point, and how far they lie apart.

A study of thirty stages is a tangle of thirty lines. What its reader asks is which rung to take at a point, over what,
and what it gains: two lines and a number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise, product

from ladder.records.run import Spread, StageResult
from reports.facts import numbers
from reports.facts.launch_regimes import regime
from reports.facts.ratios import WITHIN_NOISE
from reports.facts.run_table import name_of
from reports.facts.study_points import PointLead
from reports.facts.times import step_us
from reports.figures.canvas import Canvas
from reports.figures.chart import LINE, MARGIN, Box, Room, Scale, number, spread_apart, text_width
from reports.figures.ladder import COLOURS
from reports.figures.style import Colour

HEIGHT = 250  # pixels of a panel
AFTER = 20  # pixels between an axis's end and the names on its right
LETTER = 6  # pixels: half a letter's height
STEPS = (16, 29, 42, 55, 68)  # pixels between a dot and its name, the nearest first
DASHES = "6 4"  # a reference
HEAD, LEADS = 16, 13  # pixels of a panel above its scale: a row of leads; in a narrow one two


@dataclass(frozen=True)
class Contest:
    """A rung and a reference at a point: microseconds per step on the clock that the lead compares."""

    place: float  # pixels
    of: PointLead

    @property
    def rung_us(self) -> Spread:
        """The rung's time, with its runs where the host's clock is compared."""
        lead = self.of.lead
        return self._known(step_us(lead.stage), lead.reference_us / lead.ratio.times)

    @property
    def reference_us(self) -> Spread:
        """The reference's time."""
        return self._known(step_us(self.of.lead.reference), self.of.lead.reference_us)

    def _known(self, spread: Spread | None, compared_us: float) -> Spread:
        """The spread, unless times on the GPU are compared."""
        return spread if spread and not self.of.lead.on_gpu_time else Spread(compared_us, compared_us, compared_us)

    @property
    def words(self) -> str:
        """The lead: `4.90x`, `≤ 2.1x` where a faster reference has no time, and `2.26x*` of times on the GPU."""
        lead = self.of.lead
        return f"{'≤ ' * bool(self.of.missing)}{numbers.ratio(lead.ratio.times)}{'*' * lead.on_gpu_time}"


def draw_contests(
    canvas: Canvas, contests: Sequence[Contest], words: str, box: Box, *, is_line: bool, is_narrow: bool
) -> None:
    """Both sides of one class of precision within a box, with a row of leads above, and names where they change.

    The dots have whiskers from the fastest to the slowest run. A lead that is within noise is grey. Lines join the
    dots unless the places have no order. At their ends stand the last names with their times, unless it is narrow.
    """
    left, top, right, bottom = box
    ends = [end for one in contests for spread in (one.rung_us, one.reference_us) for end in (spread.min, spread.max)]
    head = HEAD + LEADS * is_narrow
    scale = Scale.log([min(ends) / 2, max(ends) * 1.7], bottom, top + head, number)  # with room for names
    canvas.text(MARGIN, top - 12, words, "ink", look="small bold")
    canvas.text(MARGIN, top + 6, "lead", "ink", look="small")
    scale.draw_beside(canvas, left, right)
    room = Room((left + 2, top + head - 6, min(right + AFTER, canvas.width), bottom + 8))
    rungs = [(one.place, one.rung_us) for one in contests]
    references = [(one.place, one.reference_us) for one in contests]
    for points, dash in ((rungs, ""), (references, DASHES)):
        for (at, before), (then, after) in pairwise(points if is_line else ()):
            line = [(at, scale.place(before.median)), (then, scale.place(after.median))]
            canvas.line(line, "reference" if dash else "ink", width=1.4, dash=dash)
            room.keep_free(*line)
    for index, one in enumerate(contests):
        colour: Colour = "faint" if one.of.lead.ratio.is_noise else "ink"
        canvas.text(
            one.place,
            top + 6 + LEADS * (is_narrow and index % 2),
            one.words,
            colour,
            anchor="middle",
            look="small bold",
        )
        _apart(canvas, one, scale, room)
    if not is_narrow:
        _ends(canvas, contests[-1], scale, right + AFTER)
    for one, earlier in zip(contests if is_narrow else contests[:-1], [None, *contests], strict=False):
        lead, last = one.of.lead, earlier.of.lead if earlier else None
        if last is None or not is_line or lead.reference.name != last.reference.name:
            us = f" {numbers.microseconds(one.reference_us.median)}" * (not is_line)
            dot = (one.place, scale.place(one.reference_us.median))
            draw_name(canvas, room, dot, f"{lead.reference.name}{us}", "reference", -1)
        if last is None or not is_line or lead.stage.name != last.stage.name:
            colour = COLOURS[regime(lead.stage)]
            us = f" {numbers.microseconds(one.rung_us.median)}" * (not is_line)
            draw_name(canvas, room, (one.place, scale.place(one.rung_us.median)), f"{lead.stage.name}{us}", colour, 1)


def _ends(canvas: Canvas, last: Contest, scale: Scale, left: float) -> None:
    """The names and times of the last point, on the right of its dots."""
    lead = last.of.lead
    sides: tuple[tuple[StageResult, Spread, Colour, str], ...] = (
        (lead.reference, last.reference_us, "reference", "fastest reference"),
        (lead.stage, last.rung_us, COLOURS[regime(lead.stage)], "fastest rung"),
    )
    dots = [scale.place(spread.median) for _, spread, _, _ in sides]
    heights = spread_apart(dots, min(scale.begin, scale.end), abs(scale.end - scale.begin), 2 * LINE)
    for (stage, spread, colour, words), dot, height in zip(sides, dots, heights, strict=True):
        canvas.line([(last.place + 7, dot), (left - 5, height)], "faint", width=0.5)
        text = f"{name_of(stage)}  {numbers.microseconds(spread.median)}"
        canvas.text(left, height + 1, text, colour, look="small bold")
        canvas.text(left, height + 1 + LETTER * 2, words, "faint", look="small")


def _apart(canvas: Canvas, one: Contest, scale: Scale, room: Room) -> None:
    """The dots of a point with their whiskers, and a bar between them."""
    high, low = (scale.place(spread.median) for spread in (one.reference_us, one.rung_us))
    canvas.line([(one.place, high), (one.place, low)], "grid", width=4)
    for spread, colour in ((one.reference_us, COLOURS[None]), (one.rung_us, COLOURS[regime(one.of.lead.stage)])):
        middle, ends = scale.place(spread.median), (scale.place(spread.min), scale.place(spread.max))
        if ends[0] - ends[1] > 3:
            canvas.line([(one.place, ends[0]), (one.place, ends[1])], colour)
        canvas.dot(one.place, middle, 4, colour, hollow=colour == COLOURS[None])
        room.keep_free((one.place, ends[0] + 4), (one.place, ends[1] - 4))


def draw_name(
    canvas: Canvas,
    room: Room,
    dot: tuple[float, float],
    name: str,
    colour: Colour,
    way: int,
    places: Sequence[tuple[int, int]] = (*product((1, -1), STEPS),),
) -> None:
    """A stage's name above its dot (`way` -1) or below it, at the nearest free place; without one, the table has it."""
    at, height = dot
    width = text_width(name, "small")
    for side, step in ((way * side, step) for side, step in places):
        for start in (at - width / 2, at - 8, at - width + 8):
            middle = height + side * step
            box = (start, middle - LETTER, start + width, middle + LETTER)
            leader = ((at, height + side * 6), (at, middle - side * LETTER))
            is_led = step > STEPS[1]  # nearer, the lead may stand between
            if room.is_free(box) and not (is_led and room.crosses_words(*leader)):
                room.words.append(box)
                if is_led:
                    canvas.line(leader, "faint", width=0.5)
                    room.keep_free(*leader)
                canvas.text(start, middle + 4, name, colour, look="small halo")
                return


def note(contests: Sequence[Contest]) -> str:
    """How to read the panels, in a line."""
    said = "x: how many times as fast the rung is as the fastest reference as exact. A name stands where it changes."
    classes = sorted({one.of.lead.precision for one in contests} - {"float32"})
    on_gpu_time = any(one.of.lead.on_gpu_time for one in contests)
    marks = {
        f"{' and '.join(classes)}: only rungs of this precision; references may be more exact.": bool(classes),
        f"Grey: {WITHIN_NOISE}.": any(one.of.lead.ratio.is_noise for one in contests),
        "≤: a reference that may be faster has no time there.": any(one.of.missing for one in contests),
        "*: both in GPU time, as the reference itself waits; all others in wall time.": on_gpu_time,
    }
    return " ".join([said, *(words for words, is_there in marks.items() if is_there)])
