"""Three steps in a row as pictures: what the host calls above, what the GPU does below, for one stage and for all.

The places of the axes are fixed instead of being left to matplotlib, because only then is it known before drawing how
wide a bar will be, and so whether a name has room in it.
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

from ladder.profile_data import Kind, Profile, Span
from ladder.results import Results, StageResult
from reports import format
from reports.decomposition import Profiled, all_profiled, profiled
from reports.profiles import TOOLS, kernel_names, seen_by
from reports.style import BACKGROUND, FAINT, INK, STYLE, WIDTH, tidy, title
from reports.summary import BLOCKS, label

KINDS: dict[Kind, tuple[str, str]] = {  # the colour and what the legend says
    "gemm": ("#0072b2", "matrix product"),
    "layer": ("#56b4e9", "bias, ReLU"),
    "softmax": ("#cc79a7", "softmax, loss"),
    "update": ("#009e73", "update"),
    "fused": ("#6a3d9a", "several in one"),
    "copy": ("#222222", "copy or fill"),
    "launch": ("#e8a33d", "host: launch"),
    "wait": ("#f3cdb5", "host: wait"),
    "other": ("#9a9a9a", "other"),
}
LIGHT = {"layer", "launch", "wait", "other", "softmax"}  # on which dark letters can be read
IDLE = "#efefef"
LETTERS = 7.0  # points
STEPS, SLOWEST = 3, 3.0  # no tool makes a stage slower than so many times
PICTURE = "timeline-"  # what the files of single stages begin with


def timeline_name(stage: StageResult) -> str:
    """The file that the timeline of one stage lies in."""
    return f"{PICTURE}{stage.name}.svg"


def with_timeline(results: Results) -> list[StageResult]:
    """The stages that have a timeline, in the order of the table."""
    return [one.stage for one in all_profiled(results) if one.profile.timeline and one.profile.timeline_us > 0]


def stage_timeline(stage: StageResult, results: Results) -> Figure:
    """Three steps of a stage that has a timeline, with the names of what is wide enough for them."""
    shown = _shown(stage)
    left, right, height = 0.65, 0.15, 2.75
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, height), facecolor=BACKGROUND)
        axes = _axes(figure, left, right, top=0.62, bottom=0.95)
        axes.set_xlim(0, shown.profile.timeline_us)
        axes.set_ylim(2.05, -0.05)
        for row, (name, top, thick) in {"host": ("host", 0.1, 0.75), "gpu": ("GPU", 1.1, 0.85)}.items():
            spans = [span for span in shown.profile.timeline if span.row == row]
            axes.broken_barh([(0, shown.profile.timeline_us)], (top, thick), facecolor=IDLE)
            _bars(axes, spans, top, thick)
            _names(axes, spans, top + thick / 2, (WIDTH - left - right) * 72 / shown.profile.timeline_us)
            axes.annotate(
                name, (0, top + thick / 2), (-8, 0), textcoords="offset points", ha="right", va="center",
                annotation_clip=False,
            )  # fmt: skip
        axes.set_xlabel(f"us, as seen by {seen_by(shown.profile)}", fontsize=9, color=FAINT)
        _legend(figure, [shown])
        what = f"Three steps of {label(stage)}, {format.microseconds(shown.step_us)} us/step"
        title(figure, what, results)
    return figure


def timelines(results: Results) -> Figure:
    """Three steps of every stage that has a timeline, on one time scale; there must be one at least.

    The scale ends where the slowest rung does, for a reference may take ten times as long: its rows are cut off there.
    """
    found = [_shown(stage) for stage in with_timeline(results)]
    rungs = [one for one in found if one.stage.group != "reference"]
    end = max(one.profile.timeline_us for one in rungs or found)
    gap = 0.35
    begins = [index for index, (above, one) in enumerate(pairwise(found), 1) if _block(above) != _block(one)]
    places = [index + gap * sum(begin <= index for begin in begins) for index in range(len(found))]
    height = 1.75 + 0.5 * (places[-1] + 1)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, height), facecolor=BACKGROUND)
        axes = _axes(figure, left=2.15, right=0.85, top=0.7, bottom=1.05)
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
        axes.set_xlabel(
            f"us; above the host's calls, below the GPU, as seen by {_tools(found)}; us/step is timed without",
            fontsize=9, color=FAINT, x=0.38,
        )  # fmt: skip
        _legend(figure, found)
        title(figure, "Three steps of every stage", results)
    return figure


def _block(one: Profiled) -> str:
    """The heading that a stage stands under in a table."""
    return BLOCKS.get(one.stage.group, "")


def _pair(axes: Axes, one: Profiled, place: float, end: float) -> None:
    """The two rows of a stage, its name to the left and its time to the right."""
    profile = one.profile
    for row, top, thick in (("host", place + 0.12, 0.2), ("gpu", place + 0.36, 0.5)):
        axes.broken_barh([(0, min(profile.timeline_us, end))], (top, thick), facecolor=IDLE)
        _bars(axes, [span for span in profile.timeline if span.row == row], top, thick)
    where: dict[str, Any] = {
        "xycoords": axes.get_yaxis_transform(), "textcoords": "offset points", "annotation_clip": False,
    }  # fmt: skip
    name = textwrap.fill(label(one.stage), 26)
    axes.annotate(name, (0, place + 0.5), (-8, 0), ha="right", va="center", fontsize=9, linespacing=1.0, **where)
    more = " ▸" if profile.timeline_us > end else ""
    time = format.microseconds(one.step_us) + more
    axes.annotate(time, (1, place + 0.55), (10, 0), ha="left", va="center", fontweight="bold", **where)


def _shown(stage: StageResult) -> Profiled:
    found = profiled(stage)
    if found is None:
        raise ValueError(f"{stage.name} has no profile to draw")
    return replace(found, profile=_cut_off(found.profile, STEPS * SLOWEST * found.step_us))


def _cut_off(profile: Profile, end_us: float) -> Profile:
    """A profile whose timeline ends there at the latest, although its kernel may go on for an epoch."""
    if profile.timeline_us <= end_us:
        return profile
    spans = [
        msgspec.structs.replace(span, duration_us=min(span.duration_us, end_us - span.start_us))
        for span in profile.timeline
        if span.start_us < end_us
    ]
    return msgspec.structs.replace(profile, timeline=spans, timeline_us=end_us)


def _axes(figure: Figure, left: float, right: float, top: float, bottom: float) -> Axes:
    """Axes with these margins in inches, with nothing but a time axis."""
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
        facecolors=[KINDS[span.kind][0] for span in spans],
        edgecolor=BACKGROUND,
        linewidth=0.25,
    )


def _names(axes: Axes, spans: Sequence[Span], middle: float, points_per_us: float) -> None:
    """Write into each bar what it is, where that has room; of bars inside each other into the outer one."""
    named_until = 0.0
    shortened = [kernel_names((span.name for span in spans), limit) for limit in (32, 16, 10, 8)]
    for span in sorted(spans, key=lambda span: (span.start_us, -span.duration_us)):
        room = span.duration_us * points_per_us - 3
        name = next((name for short in shortened if _width(name := short[span.name]) <= room), "")
        if name and span.start_us >= named_until:
            named_until = span.start_us + span.duration_us
            centre = span.start_us + span.duration_us / 2
            colour = INK if span.kind in LIGHT else BACKGROUND
            axes.text(centre, middle, name, size=LETTERS, color=colour, ha="center", va="center", parse_math=False)


@cache
def _width(text: str) -> float:
    """How wide a text is in points."""
    return float(TextPath((0, 0), text.replace("$", "S"), size=LETTERS).get_extents().width)


def _legend(figure: Figure, found: Sequence[Profiled]) -> None:
    kinds = {span.kind for one in found for span in one.profile.timeline}
    keys = [Patch(color=colour, label=text) for kind, (colour, text) in KINDS.items() if kind in kinds]
    keys.append(Patch(color=IDLE, label="idle; host: its own code"))
    columns = len(keys) if len(keys) <= 8 else (len(keys) + 1) // 2
    figure.legend(
        handles=keys, loc="lower center", ncols=columns, frameon=False, fontsize=8, handlelength=1.0,
        columnspacing=1.1, handletextpad=0.4,
    )  # fmt: skip


def _tools(found: Sequence[Profiled]) -> str:
    return format.listing(dict.fromkeys(TOOLS[one.profile.tool] for one in found))
