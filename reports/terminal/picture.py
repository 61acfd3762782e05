"""The picture of a run in text: a dot a rung on a log axis of us/step, with its way from the rung it climbs from."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import groupby
from typing import NamedTuple

from rich.console import Console
from rich.text import Text

from ladder.records.run import Results
from reports.facts import numbers
from reports.facts.baselines import Lead, overall_winner
from reports.facts.launch_regimes import HEADINGS, Regime, change_in_words
from reports.figures.ladder import Dot, dots, headline
from reports.writers.console import has_symbols, say

GAP = 2  # columns between name, time, chart and words
LEAST_CHART, MOST_CHART = 30, 64  # columns of the chart beside words
FEW_TICKS = 3  # an axis with fewer has finer ones as well
STYLES: dict[Regime | None, str] = {
    "host": "yellow", "graph": "blue", "one kernel": "green", "CPU": "yellow", "unknown": "", None: "",
}  # fmt: skip


class Marks(NamedTuple):
    """The signs that the picture is made of."""

    dot: str
    way: str
    reference: str


SYMBOLS, ASCII = Marks("●", "─", "┊"), Marks("o", "-", ":")


class Chart(NamedTuple):
    """The columns of the chart, and the places of times and of the reference on it."""

    width: int
    place: Callable[[float], int]
    reference: int | None  # None: off the axis
    marks: Marks


def print_picture(results: Results, console: Console) -> None:
    """Print the headline, the rungs by regime, the axis, and how to read them; a run without times prints nothing."""
    shown = dots(results)
    if not shown:
        return
    say(console, headline(shown, results) + ".", "bold")
    winner = overall_winner(results)
    names = max(len(dot.stage.name) for dot in shown)
    times = max(len(numbers.microseconds(dot.step_us.median)) for dot in shown)
    left = names + times + 2 * GAP
    words = max(len(change_in_words(dot.stage)) for dot in shown) + GAP
    with_words = console.width - left - words >= LEAST_CHART
    room = console.width - left - (words if with_words else 0)
    chart = _chart(shown, winner, max(1, min(room, MOST_CHART)), SYMBOLS if has_symbols(console) else ASCII)
    for regime, members in groupby(shown, key=lambda dot: dot.regime):
        say(console, HEADINGS[regime] if regime else "References", f"bold {STYLES[regime]}")
        for dot in members:
            line = Text(f"{dot.stage.name:{names + GAP}}")
            line.append(f"{numbers.microseconds(dot.step_us.median):>{times}}{'':{GAP}}", "bold")
            line.append_text(_line_of_dot(dot, chart))
            if with_words:
                line.append(f"{'':{GAP}}{change_in_words(dot.stage)}", "dim")
            line.rstrip()
            console.print(line, soft_wrap=True)
    console.print(Text(f"{'us/step':>{left - GAP}}{'':{GAP}}{_axis(chart)}".rstrip(), "dim"), soft_wrap=True)
    say(console, " ".join(_key(chart.marks, winner, chart.reference is not None)), "dim")


def _chart(shown: list[Dot], winner: Lead | None, width: int, marks: Marks) -> Chart:
    """A log axis from the fastest to the slowest dot; a reference beyond them is left off."""
    low, high = (math.log(end(dot.step_us.median for dot in shown)) for end in (min, max))

    def place(us: float) -> int:
        return round((math.log(us) - low) / (high - low) * (width - 1)) if high > low else 0

    reference = place(winner.reference_us) if winner else -1
    return Chart(width, place, reference if 0 <= reference < width else None, marks)


def _line_of_dot(dot: Dot, chart: Chart) -> Text:
    """The dot, its way from its parent's time, and the reference's line."""
    style, at = STYLES[dot.regime], chart.place(dot.step_us.median)
    cells = [" "] * chart.width
    if dot.parent_us is not None and not dot.is_noise:
        start = min(max(chart.place(dot.parent_us.median), 0), chart.width - 1)
        for column in range(min(start, at), max(start, at) + 1):
            cells[column] = chart.marks.way
    if chart.reference is not None and cells[chart.reference] == " ":
        cells[chart.reference] = chart.marks.reference
    cells[at] = chart.marks.dot
    return Text("".join(cells), style)


def _axis(chart: Chart) -> str:
    """The round numbers below the chart, as many as have room."""
    cells, ticks = [" "] * chart.width, 0
    for factor in (1, 5, 2, 3, 4, 7):
        if factor > 2 and ticks >= FEW_TICKS:
            break
        for power in range(-3, 9):
            value = factor * 10.0**power
            text, at = f"{value:,g}", chart.place(value)
            around = range(max(at - 1, 0), min(at + len(text) + 1, chart.width))
            if 0 <= at <= chart.width - len(text) and all(cells[column] == " " for column in around):
                cells[at : at + len(text)] = text
                ticks += 1
    return "".join(cells)


def _key(marks: Marks, winner: Lead | None, is_on_axis: bool) -> Iterator[str]:
    """How to read the picture."""
    yield f"{marks.dot} a rung's time on a log axis; {marks.way} its way from the rung that it climbs from."
    if winner is not None:
        precision = numbers.precision(winner.reference.precision)
        mark = f"{marks.reference} " if is_on_axis else ""
        name, time = winner.reference.name, numbers.microseconds(winner.reference_us)
        yield f"{mark}the fastest reference, {name} ({precision}): {time} us."
