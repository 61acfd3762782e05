"""Timelines of three steps, for one stage and for all: the host's calls above, the GPU's work below.

A profiler stretches a step, host-bound ones most. So each timeline is drawn as long as three timed steps, with its
calls and kernels scaled alike; otherwise a faster rung could look slower than its parent.

A profile cannot see the steps inside a kernel that runs many. Such a kernel is a hatched bar as long as three timed
steps.

The axes have fixed places, not matplotlib's layout, so that the width of a bar is known before drawing, and with it
whether a name fits inside.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import Any

import matplotlib as mpl
import msgspec
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.textpath import TextPath

from ladder.records.profile import Kind, Span
from ladder.records.run import Results, StageResult
from reports.facts import numbers
from reports.facts.profiles import TOOLS, kernel_names, seen_by
from reports.facts.summary import BLOCKS, name_of, table_order
from reports.facts.time_breakdown import Profiled, all_profiled, profiled
from reports.figures.style import BACKGROUND, FAINT, KIND_COLOURS, ON_PALE, STYLE, THEME, WIDTH, tidy, title

LEGEND: dict[Kind, str] = {
    "gemm": "matrix product",
    "layer": "bias, ReLU",
    "softmax": "softmax, loss",
    "update": "update",
    "fused": "several in one",
    "copy": "copy or fill",
    "launch": "host: launch",
    "wait": "host: wait",
    "other": "other",
}
LIGHT = {"layer", "launch", "other", "softmax"}  # kinds whose colours need dark text
IDLE = THEME["idle"][0]
LETTERS = 7.0  # points
STEPS = 3
HATCH, HATCHED = "////", KIND_COLOURS["fused"]


def with_timeline(results: Results) -> list[StageResult]:
    """The stages with a timeline, in table order."""
    return [one.stage for one in all_profiled(results) if _runs_many_steps(one) or one.profile.timeline_us > 0]


def left_out(results: Results) -> list[str]:
    """The passed stages without a timeline, each with the reason."""
    drawn = [stage.name for stage in with_timeline(results)]
    return [
        f"{stage.name} ({_why_left_out(stage)})"
        for stage in table_order(results)
        if stage.status == "passed" and stage.name not in drawn
    ]


def stage_timeline(stage: StageResult, results: Results) -> Figure:
    """Three steps of a stage with a timeline; bars that are wide enough carry their names."""
    shown = _shown(stage)
    end = _length_us(shown)
    left, right, height = 0.65, 0.15, 2.75
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, height), facecolor=BACKGROUND)
        axes = _axes(figure, left, right, top=0.62, bottom=0.95)
        axes.set_xlim(0, end)
        axes.set_ylim(2.05, -0.05)
        for row, (name, top, thick) in {"host": ("host", 0.1, 0.75), "gpu": ("GPU", 1.1, 0.85)}.items():
            if not _runs_many_steps(shown):
                axes.broken_barh([(0, end)], (top, thick), facecolor=IDLE)
                spans = [span for span in shown.profile.timeline if span.row == row]
                _bars(axes, spans, top, thick)
                _names(axes, spans, top + thick / 2, (WIDTH - left - right) * 72 / end)
            elif row == "gpu":
                _hatched(axes, end, top, thick)
                _say(axes, _many_steps(shown), end, end, top + thick / 2)
            else:
                launches = _an_epoch(shown, shown.profile.launches_per_step, "launch", "es")
                _say(axes, launches, end, end, top + thick / 2)
            axes.annotate(
                name, (0, top + thick / 2), (-8, 0), textcoords="offset points", ha="right", va="center",
                annotation_clip=False,
            )  # fmt: skip
        seen = f"us, scaled to the timed step; profiled by {seen_by(shown.profile)}"
        timed = "us, as timed: a profile cannot see the steps inside this kernel"
        axes.set_xlabel(timed if _runs_many_steps(shown) else seen, fontsize=9, color=FAINT)
        _legend(figure, [shown])
        title(figure, f"Three steps of {name_of(stage)}, {numbers.microseconds(shown.step_us)} us/step", results)
    return figure


def timelines(results: Results) -> Figure:
    """Three steps of every stage with a timeline, at least one, on one time scale.

    The scale ends with the slowest rung. A reference may take ten times as long, so its rows are cut there.
    """
    found = [_shown(stage) for stage in with_timeline(results)]
    rungs = [one for one in found if one.stage.group != "reference"]
    end = max(map(_length_us, rungs or found))
    gap = 0.35
    begins = [index for index, (above, one) in enumerate(pairwise(found), 1) if _block(above) != _block(one)]
    places = [index + gap * sum(begin <= index for begin in begins) for index in range(len(found))]
    notes = f"us, scaled to the timed step; the host's calls above, the GPU below, profiled by {_tools(found)}"
    if absent := left_out(results):
        notes += "\n" + textwrap.fill(f"no timeline: {', '.join(absent)}", 100)
    bottom = 1.05 + 0.16 * notes.count("\n")
    height = 0.7 + bottom + 0.5 * (places[-1] + 1)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, height), facecolor=BACKGROUND)
        axes = _axes(figure, left=2.15, right=0.85, top=0.7, bottom=bottom)
        axes.set_xlim(0, end)
        axes.set_ylim(places[-1] + 1, 0)
        for place, one in zip(places, found, strict=True):
            _pair(axes, one, place, end)
        for begin in begins:
            axes.plot(
                [-0.36, 1.14], [places[begin] - gap / 2] * 2, color=FAINT, linewidth=0.8, clip_on=False,
                transform=axes.get_yaxis_transform(),
            )  # fmt: skip
        axes.annotate(
            "us/step", (1, 1), (10, 4), xycoords="axes fraction", textcoords="offset points", color=FAINT, fontsize=9
        )
        axes.set_xlabel(notes, fontsize=9, color=FAINT, x=0.38)
        _legend(figure, found)
        title(figure, "Three steps of every stage", results)
    return figure


def _block(one: Profiled) -> str:
    """The heading of a stage's block in a table."""
    return BLOCKS.get(one.stage.group, "")


def _runs_many_steps(one: Profiled) -> bool:
    """Whether a kernel runs several steps, such as a whole epoch."""
    return 0 < one.profile.kernels_per_step < 1


def _many_steps(one: Profiled) -> str:
    """The text on the bar of a kernel that runs many steps."""
    return (
        f"{_an_epoch(one, one.profile.kernels_per_step, 'kernel', 's')}: {numbers.microseconds(one.step_us)} us a step"
    )


def _an_epoch(one: Profiled, per_step: float, noun: str, plural: str) -> str:
    """The number of something an epoch: `one kernel an epoch`, `2 kernels an epoch`."""
    count = round(per_step * one.stage.timing.steps_per_epoch) if one.stage.timing else 1
    return f"one {noun} an epoch" if count <= 1 else f"{count:,} {noun}{plural} an epoch"


def _length_us(one: Profiled) -> float:
    """The drawn length of a stage's three steps: as timed, without the tool."""
    return STEPS * one.step_us


def _why_left_out(stage: StageResult) -> str:
    if stage.device == "cpu":
        return "on the CPU"
    return "the profile saw no step" if stage.profiles else next(iter(stage.unprofiled.values()), "no profile")


def _pair(axes: Axes, one: Profiled, place: float, end: float) -> None:
    """The two rows of a stage, with its name on the left and its time on the right."""
    length = _length_us(one)
    for row, top, thick in (("host", place + 0.12, 0.2), ("gpu", place + 0.36, 0.5)):
        if not _runs_many_steps(one):
            axes.broken_barh([(0, min(length, end))], (top, thick), facecolor=IDLE)
            _bars(axes, [span for span in one.profile.timeline if span.row == row], top, thick)
        elif row == "gpu":
            _hatched(axes, length, top, thick)
            _say(axes, _many_steps(one), length, end, top + thick / 2)
    where: dict[str, Any] = {
        "xycoords": axes.get_yaxis_transform(), "textcoords": "offset points", "annotation_clip": False,
    }  # fmt: skip
    axes.annotate(
        name_of(one.stage), (0, place + 0.5), (-8, 0), ha="right", va="center", fontsize=9, linespacing=1.0, **where
    )
    more = " ▸" if length > end else ""
    time = numbers.microseconds(one.step_us) + more
    axes.annotate(time, (1, place + 0.55), (10, 0), ha="left", va="center", fontweight="bold", **where)


def _hatched(axes: Axes, length: float, top: float, thick: float) -> None:
    """The bar of a kernel that runs many steps."""
    axes.broken_barh([(0, length)], (top, thick), facecolor=BACKGROUND, edgecolor=HATCHED, hatch=HATCH, linewidth=0.8)


def _say(axes: Axes, text: str, length: float, end: float, middle: float) -> None:
    """Write beside a hatched bar that begins at 0, or into it if there is no room beside it."""
    points = axes.get_window_extent().width * 72 / axes.figure.dpi
    if length / end * points + _width(text) * (LETTERS + 1) / LETTERS + 8 < points:
        offset: dict[str, Any] = {"xytext": (4, 0), "textcoords": "offset points", "color": FAINT}
        axes.annotate(text, (length, middle), va="center", fontsize=LETTERS + 1, **offset)
        return
    paper = {"facecolor": BACKGROUND, "edgecolor": "none", "pad": 2.5}
    axes.text(min(length, end) / 2, middle, text, ha="center", va="center", fontsize=LETTERS + 1, bbox=paper)


def _shown(stage: StageResult) -> Profiled:
    found = profiled(stage)
    if found is None:
        raise ValueError(f"{stage.name} has no profile to draw")
    return found if _runs_many_steps(found) else _scaled(found)


def _scaled(one: Profiled) -> Profiled:
    """The stage with the bars of its timeline scaled to three timed steps."""
    scale = _length_us(one) / one.profile.timeline_us
    spans = [
        msgspec.structs.replace(span, start_us=span.start_us * scale, duration_us=span.duration_us * scale)
        for span in one.profile.timeline
    ]
    profile = msgspec.structs.replace(one.profile, timeline=spans, timeline_us=_length_us(one))
    return replace(one, profile=profile)


def _axes(figure: Figure, left: float, right: float, top: float, bottom: float) -> Axes:
    """Axes with these margins in inches and only a time axis."""
    width, height = figure.get_size_inches()
    axes = figure.add_axes((left / width, bottom / height, 1 - (left + right) / width, 1 - (top + bottom) / height))
    tidy(axes, "x")
    axes.spines["left"].set_visible(False)
    axes.set_yticks([])
    return axes


def _bars(axes: Axes, spans: Sequence[Span], top: float, thick: float) -> None:
    axes.broken_barh(
        [(span.start_us, span.duration_us) for span in spans],
        (top, thick),
        facecolors=[KIND_COLOURS[span.kind] for span in spans],
        edgecolor=BACKGROUND,
        linewidth=0.25,
    )


def _names(axes: Axes, spans: Sequence[Span], middle: float, points_per_us: float) -> None:
    """Write the name into each bar with room for it; of nested bars, only into the outer one."""
    named_until = 0.0
    shortened = [kernel_names((span.name for span in spans), limit) for limit in (32, 16, 10, 8)]
    for span in sorted(spans, key=lambda span: (span.start_us, -span.duration_us)):
        room = span.duration_us * points_per_us - 3
        name = next((name for short in shortened if _width(name := short[span.name]) <= room), "")
        if name and span.start_us >= named_until:
            named_until = span.start_us + span.duration_us
            centre = span.start_us + span.duration_us / 2
            colour = ON_PALE if span.kind in LIGHT else BACKGROUND
            axes.text(centre, middle, name, size=LETTERS, color=colour, ha="center", va="center", parse_math=False)


@cache
def _width(text: str) -> float:
    """The width of a text in points."""
    return float(TextPath((0, 0), text.replace("$", "S"), size=LETTERS).get_extents().width)


def _legend(figure: Figure, found: Sequence[Profiled]) -> None:
    kinds = {span.kind for one in found if not _runs_many_steps(one) for span in one.profile.timeline}
    keys = [Patch(color=KIND_COLOURS[kind], label=text) for kind, text in LEGEND.items() if kind in kinds]
    if any(map(_runs_many_steps, found)):
        keys.append(Patch(facecolor=BACKGROUND, edgecolor=HATCHED, hatch=HATCH, label="many steps in one kernel"))
    if kinds:
        keys.append(Patch(color=IDLE, label="idle; host: own code"))
    columns = len(keys) if len(keys) <= 8 else (len(keys) + 1) // 2
    figure.legend(
        handles=keys, loc="lower center", ncols=columns, frameon=False, fontsize=8, handlelength=1.0,
        columnspacing=1.1, handletextpad=0.4,
    )  # fmt: skip


def _tools(found: Sequence[Profiled]) -> str:
    return numbers.listing(dict.fromkeys(TOOLS[one.profile.tool] for one in found))
