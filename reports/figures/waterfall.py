"""From the first rung's time down to the last's: what each rung changed, part by part."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ladder.records.run import Results
from reports.facts import numbers
from reports.facts.summary import label
from reports.facts.time_breakdown import Change, chain
from reports.figures.style import BACKGROUND, FAINT, INK, STYLE, WIDTH, tidy, title

WHOLE = "#c3ccd6"
REST = "rest"  # beside the parts
COLOURS = {
    "kernels": "#0072b2",
    "copies": "#222222",
    "between queued kernels": "#56b4e9",
    "host launching": "#e8a33d",
    "host waiting": "#d55e00",
    REST: BACKGROUND,
}


@dataclass(frozen=True)
class Bar:
    """From one time to another, in us a step; a whole step begins at 0."""

    name: str
    begin: float
    end: float
    is_step: bool = False  # a rung's whole step and not one part's change


def waterfall(results: Results) -> Figure:
    """The way up the ladder as bars on which one walks from time to time; one change at least must be known."""
    way = chain(results)
    found = list(bars(way))
    slowest = way[0].below.step_us
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
        axes.set_xlabel("us/step; between two rungs what each part, fitted to the timed step, lost or gained")
        title(figure, "What each rung changed", results)
    return figure


def bars(way: list[Change]) -> Iterator[Bar]:
    """The bars from top to bottom; of the changes those that are not zero as they are rounded."""
    first = way[0].below
    yield Bar(label(first.stage), 0.0, first.step_us, is_step=True)
    for change in way:
        at = change.below.step_us
        for name, us in {**change.parts_us, REST: change.rest_us}.items():
            if numbers.change(us, first.step_us).strip("0.") != "":
                yield Bar(name, at, at + us)
            at += us
        yield Bar(label(change.rung.stage), 0.0, change.rung.step_us, is_step=True)


def _draw(axes: Axes, bar: Bar, middle: float, thick: float, slowest: float) -> None:
    """A bar with its number: the time of a step, or the change with as many decimals as the slowest step."""
    is_rest = bar.name == REST and not bar.is_step
    axes.barh(
        middle,
        abs(bar.end - bar.begin),
        thick,
        min(bar.begin, bar.end),
        facecolor=WHOLE if bar.is_step else COLOURS[bar.name],
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
