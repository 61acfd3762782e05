"""A panel of a study's figure: the fastest rung and the fastest reference at each point, and how far they lie apart.

A study of thirty stages is a tangle of thirty lines. What its reader asks is which rung to take at a point, over what,
and what it gains: two lines and a number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise, product

from ladder.records.run import Spread
from reports.facts import numbers
from reports.facts.launch_regimes import regime
from reports.facts.ratios import WITHIN_NOISE
from reports.facts.run_table import name_of
from reports.facts.study_points import PointLead
from reports.facts.times import step_us
from reports.figures.canvas import Canvas
from reports.figures.chart import MARGIN, Box, Point, Room, Scale, number, text_width
from reports.figures.ladder import COLOURS
from reports.figures.style import Colour

HEIGHT = 250  # pixels of a panel
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
        return self._known(step_us(lead.stage), lead.own_us)

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
    """Both sides of one class of precision within a box, with a row of leads above, in a narrow one two.

    The dots have whiskers from the fastest to the slowest run. A lead that is within noise is grey. Lines join the
    dots unless the places have no order. Names stand where they change; the last ones have their times.
    """
    left, top, right, bottom = box
    ends = [end for one in contests for spread in (one.rung_us, one.reference_us) for end in (spread.min, spread.max)]
    head = HEAD + LEADS * is_narrow
    scale = Scale.log([min(ends) / 2, max(ends) * 1.7], bottom, top + head, number)  # with room for names
    canvas.text(MARGIN, top - 12, words, "ink", look="small bold")
    canvas.text(MARGIN, top + 6, "lead", "ink", look="small")
    scale.draw_beside(canvas, left, right)
    room = Room((left + 2, top + head - 6, canvas.width, bottom + 8))
    for index, one in enumerate(contests):
        colour: Colour = "faint" if one.of.lead.ratio.is_noise else "ink"
        height = top + 6 + LEADS * (is_narrow and index % 2)
        canvas.text(one.place, height, one.words, colour, anchor="middle", look="small bold")
        canvas.line([(one.place, scale.place(us.median)) for us in (one.reference_us, one.rung_us)], "grid", width=4)
    sides = [
        [(one, one.of.lead.reference, one.reference_us) for one in contests],
        [(one, one.of.lead.stage, one.rung_us) for one in contests],
    ]
    for side, dash in zip(sides, (DASHES, ""), strict=True):
        dots = [(one.place, scale.place(us.median)) for one, _, us in side]
        for line in pairwise(dots if is_line else ()):
            canvas.line(line, "reference" if dash else "ink", width=1.4, dash=dash)
            room.keep_free(*line)
        for (one, stage, us), dot in zip(side, dots, strict=True):
            _dot(canvas, dot, us, COLOURS[None if dash else regime(stage)], scale, room, one.of.lead.on_gpu_time)
    for side, way in zip(sides, (-1, 1), strict=True):
        before = ["", *(stage.name for _, stage, _ in side)]
        for (one, stage, us), earlier in reversed([*zip(side, before, strict=False)]):  # the last ones find room
            with_time = one is contests[-1] or not is_line
            if with_time or stage.name != earlier:
                told = name_of(stage) + f" {numbers.microseconds(us.median)}" * with_time
                dot = one.place, scale.place(us.median)
                draw_name(canvas, room, dot, told, COLOURS[None if way < 0 else regime(stage)], way)


def _dot(canvas: Canvas, dot: Point, us: Spread, colour: Colour, scale: Scale, room: Room, on_gpu_time: bool) -> None:
    """A side's time at a point, with whiskers where they can be seen; a square in the GPU's time."""
    (at, middle), low, high = dot, scale.place(us.min), scale.place(us.max)
    if low - high > 3:
        canvas.line([(at, low), (at, high)], colour)
    if on_gpu_time:
        canvas.rectangle(at - 4, middle - 4, 8, 8, colour, hollow=colour == COLOURS[None])
    else:
        canvas.dot(at, middle, 4, colour, hollow=colour == COLOURS[None])
    room.keep_free((at, low + 4), (at, high - 4))


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
            is_led = step > STEPS[0]
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
        "*, squares: both in GPU time, as the reference itself waits; all others in wall time.": on_gpu_time,
    }
    return " ".join([said, *(words for words, is_there in marks.items() if is_there)])
