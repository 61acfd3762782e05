"""A waterfall from the first rung's time to the last one's: the change of each rung, part by part."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ladder.records.run import Results
from reports.facts import numbers
from reports.facts.time_breakdown import Change, chain
from reports.figures.style import BACKGROUND, FAINT, INK, PART_COLOURS, STYLE, WIDTH, tidy, title

WHOLE_STEP = "#c3ccd6"
REST = "rest"  # the difference that no part accounts for


@dataclass(frozen=True)
class Bar:
    """A bar from one time to another, in microseconds a step; a whole step begins at 0."""

    name: str
    begin: float
    end: float
    is_step: bool = False  # a rung's whole step, not the change of one part


def waterfall(results: Results) -> Figure:
    """The way up the ladder as bars from time to time; at least one change must be known."""
    way = chain(results)
    found = list(bars(way))
    slowest = way[0].parent.step_us
    height = [0.34 if bar.is_step else 0.23 for bar in found]
    tops = [sum(height[:index]) for index in range(len(height))]
    middles = [top + thick / 2 for top, thick in zip(tops, height, strict=True)]
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, 1.2 + sum(height)), layout="constrained", facecolor=BACKGROUND)
        axes = figure.add_subplot()
        places = [0.0, *(bar.begin for bar in found), *(bar.end for bar in found)]
        axes.set_xlim(min(places) * 1.1, max(places) * 1.1)  # room for the number beside the longest bar
        axes.set_ylim(sum(height) + 0.1, -0.1)
        axes.set_yticks(middles, [textwrap.shorten(bar.name, 40, placeholder=" ...") for bar in found])
        for bar, tick in zip(found, axes.get_yticklabels(), strict=True):
            tick.set(color=INK if bar.is_step else FAINT, size=10 if bar.is_step else 8.5)
        axes.tick_params(axis="y", length=0)
        for bar, middle, thick in zip(found, middles, height, strict=True):
            _draw(axes, bar, middle, thick * 0.78, slowest)
        for bar, top, below in zip(found, tops, tops[1:], strict=False):
            axes.plot([bar.end] * 2, [top + 0.02, below + 0.2], color=FAINT, linewidth=0.7, zorder=0.5)
        tidy(axes, "x")
        axes.spines["left"].set_visible(False)
        axes.set_xlabel("us/step; between two rungs, the change of each part, fitted to the timed steps")
        title(figure, "The change of each rung", results)
    return figure


def bars(way: list[Change]) -> Iterator[Bar]:
    """The bars from top to bottom; changes that round to zero are left out."""
    first = way[0].parent
    yield Bar(first.stage.name, 0.0, first.step_us, is_step=True)
    for change in way:
        at = change.parent.step_us
        for name, us in {**change.parts_us, REST: change.rest_us}.items():
            if numbers.change(us, first.step_us).strip("0.") != "":
                yield Bar(name, at, at + us)
            at += us
        yield Bar(change.rung.stage.name, 0.0, change.rung.step_us, is_step=True)


def _draw(axes: Axes, bar: Bar, middle: float, thick: float, slowest: float) -> None:
    """A bar with its number: a step's time, or a change with the decimals of the slowest step."""
    is_rest = bar.name == REST and not bar.is_step
    part = BACKGROUND if is_rest else PART_COLOURS.get(bar.name, WHOLE_STEP)
    axes.barh(
        middle,
        abs(bar.end - bar.begin),
        thick,
        min(bar.begin, bar.end),
        facecolor=WHOLE_STEP if bar.is_step else part,
        edgecolor=FAINT if is_rest else "none",
        hatch="////" if is_rest else None,
        linewidth=0.6,
    )
    axes.annotate(
        numbers.microseconds(bar.end) if bar.is_step else numbers.change(bar.end - bar.begin, slowest),
        (max(bar.begin, bar.end), middle),
        (4, 0),
        textcoords="offset points",
        va="center",
        fontweight="bold" if bar.is_step else "normal",
        size=10 if bar.is_step else 8.5,
    )
