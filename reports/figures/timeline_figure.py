"""Timelines of three steps, for one stage, two on one clock, or all: the host's calls above, the GPU's work below.

On the CPU, each thread has a row of its own for its kernels and waits.

A profiler stretches a step, host-bound ones most. So each timeline is drawn as long as three timed steps, with its
calls and kernels scaled alike; otherwise a faster rung could look slower than its parent.

A profile cannot see the steps inside a kernel that runs many. Such a kernel is a pale bar as long as three timed steps.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

import msgspec

from ladder.records.profile import Kind, Row, Span
from ladder.records.run import BLOCKS, Results, StageResult
from reports.facts import numbers
from reports.facts.profiles import TOOLS, kernel_names, seen_by
from reports.facts.run_table import name_of, table_order
from reports.facts.time_breakdown import Profiled, all_profiled, profiled
from reports.figures.canvas import Canvas
from reports.figures.chart import KEY_LINE, Heading, Key, Scale, key_lines, legend, text_width
from reports.figures.style import OPERATION_COLOURS, PIXELS, Colour, subject

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
MANY, IDLE = "many steps in one kernel", "idle; host: own code"
WAIT_ON_CPU, IDLE_ON_CPU = "waits at a barrier", "Python"
DEEP: tuple[Kind, ...] = ("gemm", "fused", "copy", "wait")  # kinds whose colours need light text on a light page
PALE = 0.3  # opacity of a kernel that runs many steps
LEFT, RIGHT = 60, PIXELS - 14  # pixels: the axis of one or two stages
NAMES, TIMES = 190, PIXELS - 76  # pixels: the axis of all stages, with names on its left and times on its right
TOP, FOOT = 62, 44
NARROWEST = 0.6  # pixels; a shorter bar could not be seen
STEPS = 3


def with_timeline(results: Results) -> list[StageResult]:
    """The stages with a timeline, in table order."""
    return [rung.stage for rung in all_profiled(results) if runs_many_steps(rung) or rung.profile.timeline_us > 0]


def left_out(results: Results) -> list[str]:
    """The passed stages without a timeline, each with the reason."""
    drawn = [stage.name for stage in with_timeline(results)]
    return [
        f"{stage.name} ({_why_left_out(stage)})"
        for stage in table_order(results)
        if stage.status == "passed" and stage.name not in drawn
    ]


def shown(stage: StageResult) -> Profiled:
    """The stage as its timeline shows it, scaled to three timed steps; ValueError without a profile."""
    rung = profiled(stage)
    if rung is None:
        raise ValueError(f"{stage.name} has no profile to draw")
    return rung if runs_many_steps(rung) else _scaled(rung)


def on_one_clock(rungs: Sequence[Profiled], results: Results, *, is_page: bool = False) -> Canvas:
    """Three steps of one stage or two, one below the other, to one scale.

    On a page the bars are left to its script, which has the times of every stage once: a group says where they go.
    """
    names = " and ".join(f"{name_of(rung.stage)}, {numbers.microseconds(rung.step_us)} us/step" for rung in rungs)
    keys = list(_keys(rungs))
    height = TOP + 104 * len(rungs) + FOOT + KEY_LINE * len(key_lines(keys))
    title = f"Three steps of {names}"
    canvas = Canvas(PIXELS, height, f"{title}: {subject(results)}", _description(rungs))
    Heading(title, subject(results), look="bold").draw(canvas)
    end = max(map(_length_us, rungs))

    scale, top, bottom = Scale.linear([0, end], LEFT, RIGHT), float(TOP), TOP + 104 * len(rungs)
    scale.draw_below(canvas, TOP - 4, bottom)
    for rung in rungs:
        if len(rungs) > 1:
            canvas.text(LEFT, top + 13, name_of(rung.stage), look="mono bold")
        for name, row, (below, thick) in _rows(rung, (("host", 20.0, 30.0), ("GPU", 56.0, 38.0)), gap=6.0):
            canvas.text(LEFT - 10, top + below + thick / 2 + 4, name, "faint", anchor="end", look="small")
            _draw_spans(canvas, rung, row, (top + below, thick), scale.place, is_page=is_page)
        top += 104
    seen = [rung for rung in rungs if not runs_many_steps(rung)]
    tools = seen_by(rungs[0].profile) if len(rungs) == 1 else _tools(seen or rungs)
    words = f"us, scaled to the timed step; profiled by {tools}" if seen else "us, as timed"
    canvas.text(LEFT, bottom + 34, words, "faint", look="small")
    legend(canvas, keys, bottom + FOOT)
    return canvas


def timelines(results: Results) -> Canvas:
    """Three steps of every stage with a timeline, at least one, on one time scale.

    The scale ends with the slowest rung. A reference may take ten times as long, so its rows are cut there.
    """
    in_order = [shown(stage) for stage in with_timeline(results)]
    rungs = [rung for rung in in_order if rung.stage.group != "reference"]
    end = max(map(_length_us, rungs or in_order))
    devices = {rung.is_on_cpu: "a row for each thread" if rung.is_on_cpu else "the host's calls above, the GPU below"
               for rung in in_order}  # fmt: skip
    notes = [f"us, scaled to the timed step; {', or '.join(devices.values())}; profiled by {_tools(in_order)}"]
    if absent := left_out(results):
        notes += textwrap.wrap(f"no timeline: {', '.join(absent)}", 120)
    keys = list(_keys(in_order))
    gaps = sum(_block(above) != _block(rung) for above, rung in pairwise(in_order))
    bottom = TOP + 36 * len(in_order) + 14 * gaps
    title = "Three steps of every stage"
    height = bottom + FOOT + 14 * (len(notes) - 1) + KEY_LINE * len(key_lines(keys))
    canvas = Canvas(PIXELS, height, f"{title}: {subject(results)}", _description(in_order))
    Heading(title, subject(results), look="bold").draw(canvas)
    canvas.text(TIMES + 10, TOP - 8, "us/step", "faint", look="small")

    scale = Scale.linear([0, end], NAMES, TIMES)
    scale.draw_below(canvas, TOP - 4, bottom)
    top = float(TOP)
    for above, rung in zip([None, *in_order], in_order, strict=False):
        if above is not None and _block(above) != _block(rung):
            canvas.line([(12, top + 6), (PIXELS - 12, top + 6)], "faint")
            top += 14
        canvas.text(NAMES - 10, top + 25, name_of(rung.stage), anchor="end", look="mono")
        for _, row, (below, thick) in _rows(rung, (("host", 4.0, 8.0), ("GPU", 13.0, 19.0)), gap=1.0):
            _draw_spans(canvas, rung, row, (top + below, thick), scale.within, named=False)
        more = " ▸" if _length_us(rung) > end else ""
        canvas.text(TIMES + 10, top + 25, numbers.microseconds(rung.step_us) + more, look="bold")
        top += 36
    for index, note in enumerate(notes):
        canvas.text(12, bottom + 34 + 14 * index, note, "faint", look="small")
    legend(canvas, keys, bottom + FOOT + 14 * (len(notes) - 1))
    return canvas


def runs_many_steps(rung: Profiled) -> bool:
    """Whether a kernel runs several steps, such as a whole epoch."""
    return 0 < rung.profile.kernels_per_step < 1


def _block(rung: Profiled) -> str:
    """The heading of a stage's block in a table."""
    return BLOCKS.get(rung.stage.group, "")


def _rows(
    rung: Profiled, places: tuple[tuple[str, float, float], tuple[str, float, float]], gap: float
) -> list[tuple[str, tuple[Row, int], tuple[float, float]]]:
    """The rows of a stage: name, row and thread, top and height; threads of the CPU share the room of two rows."""
    (above, top, high), (below, lower, deep) = places
    if not rung.is_on_cpu:
        return [(above, ("host", 0), (top, high)), (below, ("gpu", 0), (lower, deep))]
    threads = sorted({span.thread for span in rung.profile.timeline}) or [0]
    thick = (lower + deep - top + gap) / len(threads) - gap
    names = [f"CPU {thread + 1}" for thread in threads] if len(threads) > 1 else ["CPU"]
    return [
        (name, ("cpu", thread), (top + at * (thick + gap), thick))
        for at, (name, thread) in enumerate(zip(names, threads, strict=True))
    ]


def _draw_spans(
    canvas: Canvas,
    rung: Profiled,
    row: tuple[Row, int],
    where: tuple[float, float],
    place: Callable[[float], float],
    *,
    named: bool = True,
    is_page: bool = False,
) -> None:
    """A row of bars at (top, height), with names where there is room."""
    top, thick = where
    left, right = place(0), place(_length_us(rung))
    if runs_many_steps(rung):
        words = _many_steps(rung)
        if row[0] == "gpu":
            canvas.rectangle(left, top, right - left, thick, "one-kernel", opacity=PALE)
        elif named:
            words = _an_epoch(rung, rung.profile.launches_per_step, "launch", "es")
        if row[0] == "gpu" or named:
            _say(canvas, words, (left, right, place(_length_us(rung) * 1e9) if not named else RIGHT), top + thick / 2)
        return
    canvas.rectangle(left, top, right - left, thick, "idle")
    spans = [span for span in rung.profile.timeline if (span.row, span.thread) == row]
    for span in () if is_page else spans:
        begin, end = place(span.start_us), place(span.start_us + span.duration_us)
        if begin >= right and not named:
            continue  # beyond the cut axis
        colour = OPERATION_COLOURS[span.kind]
        canvas.rectangle(begin, top, max(end - begin, NARROWEST), thick, colour)
    if is_page:
        seen_us = rung.stage.profile.timeline_us if rung.stage.profile is not None else 0.0
        places = {"left": left, "scale": (right - left) / seen_us, "top": top, "height": thick}
        numbers_ = {f"data_{name}": f"{value:.6g}" for name, value in places.items()}
        with canvas.group(data_bars=rung.stage.name, data_row=row_name(*row), **numbers_):
            pass
    if named:
        _names(canvas, spans, top + thick / 2, place)


def row_name(row: Row, thread: int) -> str:
    """A row as the page's script has it: `host`, `gpu`, or a thread of the CPU, such as `cpu 0`."""
    return f"cpu {thread}" if row == "cpu" else row


def _names(canvas: Canvas, spans: Sequence[Span], middle: float, place: Callable[[float], float]) -> None:
    """Write the name into each bar with room for it; of nested bars, only into the outer one."""
    named_until = 0.0
    shortened = [kernel_names((span.name for span in spans), limit) for limit in (32, 16, 10, 8)]
    for span in sorted(spans, key=lambda span: (span.start_us, -span.duration_us)):
        end = span.start_us + span.duration_us
        room = place(end) - place(span.start_us) - 6
        name = next((name for short in shortened if text_width(name := short[span.name], "small") <= room), "")
        if name and span.start_us >= named_until:
            named_until = end
            colour: Colour = "paper" if span.kind in DEEP else "on-pale"
            at = (place(span.start_us) + place(end)) / 2
            canvas.text(at, middle + 4, name, colour, anchor="middle", look="small inside")


def _say(canvas: Canvas, words: str, ends: tuple[float, float, float], middle: float) -> None:
    """Write beside a bar that ends before the axis does, or into it if there is no room beside it."""
    left, right, last = ends
    if right + 8 + text_width(words, "small") < last:
        canvas.text(right + 8, middle + 4, words, "faint", look="small")
    else:
        canvas.text((left + right) / 2, middle + 4, words, anchor="middle", look="small halo")


def _keys(rungs: Sequence[Profiled]) -> Iterator[Key]:
    """The legend's entries."""
    kinds = {span.kind for rung in rungs if not runs_many_steps(rung) for span in rung.profile.timeline}
    on_cpu = {rung.is_on_cpu for rung in rungs if not runs_many_steps(rung)}
    for kind, text in LEGEND.items():
        if kind in kinds:
            yield Key(WAIT_ON_CPU if kind == "wait" and on_cpu == {True} else text, OPERATION_COLOURS[kind])
    if any(map(runs_many_steps, rungs)):
        yield Key(MANY, "one-kernel", PALE)
    if kinds:
        yield Key(IDLE_ON_CPU if on_cpu == {True} else IDLE, "idle")


def _description(rungs: Sequence[Profiled]) -> str:
    """The times and the kernels of a step, for a reader who cannot see the bars."""
    return " ".join(
        f"{name_of(rung.stage)}: {numbers.microseconds(rung.step_us)} us a step, "
        f"{numbers.per_step(rung.profile.launches_per_step)} {'calls' if rung.is_on_cpu else 'launches'} and "
        f"{numbers.per_step(rung.profile.kernels_per_step)} kernels."
        for rung in rungs
    )


def _many_steps(rung: Profiled) -> str:
    """The text on the bar of a kernel that runs many steps."""
    kernels = _an_epoch(rung, rung.profile.kernels_per_step, "kernel", "s")
    return f"{kernels}: {numbers.microseconds(rung.step_us)} us a step"


def _an_epoch(rung: Profiled, per_step: float, noun: str, plural: str) -> str:
    """The number of something an epoch: `one kernel an epoch`, `2 kernels an epoch`."""
    count = round(per_step * rung.stage.timing.steps_per_epoch) if rung.stage.timing else 1
    return f"one {noun} an epoch" if count <= 1 else f"{count:,} {noun}{plural} an epoch"


def _length_us(rung: Profiled) -> float:
    """The drawn length of a stage's three steps: as timed, without the tool."""
    return STEPS * rung.step_us


def _why_left_out(stage: StageResult) -> str:
    if stage.device == "cpu":
        return "on the CPU"
    return "the profile saw no step" if stage.profiles else next(iter(stage.unprofiled.values()), "no profile")


def _scaled(rung: Profiled) -> Profiled:
    """The stage with the bars of its timeline scaled to three timed steps."""
    scale = _length_us(rung) / rung.profile.timeline_us
    spans = [
        msgspec.structs.replace(span, start_us=span.start_us * scale, duration_us=span.duration_us * scale)
        for span in rung.profile.timeline
    ]
    profile = msgspec.structs.replace(rung.profile, timeline=spans, timeline_us=_length_us(rung))
    return replace(rung, profile=profile)


def _tools(rungs: Sequence[Profiled]) -> str:
    return numbers.listing(dict.fromkeys(TOOLS[rung.profile.tool] for rung in rungs))
