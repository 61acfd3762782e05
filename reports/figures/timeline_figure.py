"""Timelines of three steps, for one stage or two on one clock: the host's calls above, the GPU's work below.

On the CPU, each thread has a row of its own for its kernels and waits.

A profiler stretches a step, host-bound ones most. So each timeline is drawn as long as three timed steps, with its
calls and kernels scaled alike; otherwise a faster rung could look slower than its parent.

A profile cannot see the steps inside a kernel that runs many. Such a kernel is a pale bar as long as three timed steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import msgspec

from ladder.records.profile import Kind, Row, Span
from ladder.records.run import Results, StageResult
from reports.facts import numbers
from reports.facts.launch_regimes import in_network
from reports.facts.profiles import TOOLS, kernel_names
from reports.facts.run_table import name_of
from reports.facts.time_breakdown import Profiled, all_profiled, fitted, profiled
from reports.figures.canvas import Canvas
from reports.figures.chart import (
    KEY_LINE,
    LINE,
    MARGIN,
    Heading,
    Key,
    Scale,
    draw_lines,
    folded,
    key_lines,
    legend,
    text_width,
)
from reports.figures.style import OPERATION_COLOURS, PIXELS, Colour, subject

LEGEND: dict[Kind, str] = {
    "gemm": "matrix product",
    "layer": "bias, ReLU",
    "softmax": "softmax, loss",
    "update": "update",
    "fused": "fused kernels",
    "copy": "copy or fill",
    "launch": "host: launch",
    "wait": "host: wait",
    "other": "other",
}
MANY, IDLE = "many steps in one kernel", "GPU without work; host in its own code"
WAIT_ON_CPU, IDLE_ON_CPU = "waits at a barrier", "Python"
DEEP: tuple[Kind, ...] = ("gemm", "copy", "launch", "wait")  # kinds that need light text on a light page
PALE = 0.3  # opacity of a kernel that runs many steps
LEFT, RIGHT = 60, PIXELS - 14  # pixels: the axis
STAGE, FOOT = 104, 27  # pixels; the first is the height of a stage
HOST, GPU, GAP = (20.0, 30.0), (56.0, 38.0), 6.0  # pixels: the top and height of a row, and what parts threads
TICK = 5  # pixels above and below a stage's rows, at the end of a step
NARROWEST = 0.6  # pixels; a shorter bar could not be seen
STEPS = 3


def with_timeline(results: Results) -> list[StageResult]:
    """The stages with a timeline, in table order."""
    return [rung.stage for rung in all_profiled(results) if runs_many_steps(rung) or rung.profile.timeline_us > 0]


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
    keys = [replace(key, words=in_network(key.words, results.problem)) for key in _keys(rungs)]
    heading = Heading(", ".join(map(_takes, rungs)), subject(results), look="bold")
    first = heading.bottom + 14
    bottom = first + STAGE * len(rungs)
    says = [line for note in _notes(rungs) for line in folded(note, PIXELS - 2 * MARGIN, "small")]
    foot = bottom + FOOT + LINE * len(says)
    height = foot + KEY_LINE * len(key_lines(keys))
    canvas = Canvas(PIXELS, height, f"{heading.title}: {heading.subject}", _description(rungs))
    heading.draw(canvas)
    scale = Scale.linear([0, max(map(_length_us, rungs))], LEFT, RIGHT)
    scale.draw_below(canvas, first - 4, bottom)
    for number, rung in enumerate(rungs):
        top = first + number * STAGE
        if len(rungs) > 1:
            canvas.text(LEFT, top + 13, name_of(rung.stage), look="mono bold")
        for name, row, (below, thick) in _rows(rung):
            canvas.text(LEFT - 10, top + below + thick / 2 + 4, name, "faint", anchor="end", look="small")
            _draw_spans(canvas, rung, row, (top + below, thick), scale.place, is_page=is_page)
        for at in (scale.place(step * rung.step_us) for step in range(1, STEPS)):
            for edge in (top + HOST[0] - TICK, top + sum(GPU)):
                canvas.line([(at, edge), (at, edge + TICK)], "ink")
    draw_lines(canvas, says, bottom + 34)
    legend(canvas, keys, foot)
    return canvas


def _notes(rungs: Sequence[Profiled]) -> Iterator[str]:
    """What the axis shows, where its bars are from, and what their profiles cost."""
    yield "us of three steps, as timed; ticks above and below: where a step ends"
    seen = [rung for rung in rungs if not runs_many_steps(rung)]
    if seen:
        names = [f" ({name_of(rung.stage)})" * (len(rungs) > 1) for rung in seen]
        costs = [numbers.share(max(0.0, rung.profile.slowdown)) + name for rung, name in zip(seen, names, strict=True)]
        tools = numbers.listing(dict.fromkeys(TOOLS[rung.profile.tool] for rung in seen))
        longer = f"{tools}, under which a step takes {numbers.listing(costs)} longer"
        yield f"Bars{' and GPU busy' * (not seen[0].is_on_cpu)}: by {longer}; scaled back."
        if not seen[0].is_on_cpu:
            busy = [numbers.rough_share(_drawn_busy(rung)) + name for rung, name in zip(seen, names, strict=True)]
            yield f"GPU busy: an epoch's mean, without the tool's own time; of these bars: {numbers.listing(busy)}."


def _drawn_busy(rung: Profiled) -> float:
    """The share of three steps in which the drawn bars have the GPU work; some lie over others."""
    bars = [(one.start_us, one.start_us + one.duration_us) for one in rung.profile.timeline if one.row == "gpu"]
    busy_us = until = 0.0
    for begin, end in sorted(bars):
        busy_us += max(0.0, end - max(begin, until))
        until = max(until, end)
    return busy_us / _length_us(rung)


def _takes(rung: Profiled) -> str:
    """A step's time, and the share of it in which the GPU works: `naive takes 91.0 us per step (GPU busy: 50%)`."""
    work = numbers.rough_share(fitted(rung.profile).work_us / rung.step_us)
    aside = "" if rung.is_on_cpu or runs_many_steps(rung) else f" (GPU busy: {work})"
    return f"{name_of(rung.stage)} takes {numbers.microseconds(rung.step_us)} us per step{aside}"


def runs_many_steps(rung: Profiled) -> bool:
    """Whether a kernel runs several steps, such as a whole epoch."""
    return 0 < rung.profile.kernels_per_step < 1


def _rows(rung: Profiled) -> list[tuple[str, tuple[Row, int], tuple[float, float]]]:
    """The rows of a stage: name, row and thread, top and height; threads of the CPU share the room of two rows."""
    if not rung.is_on_cpu:
        return [("host", ("host", 0), HOST), ("GPU", ("gpu", 0), GPU)]
    threads = sorted({span.thread for span in rung.profile.timeline}) or [0]
    thick = (sum(GPU) - HOST[0] + GAP) / len(threads) - GAP
    names = [f"CPU {thread + 1}" for thread in threads] if len(threads) > 1 else ["CPU"]
    return [
        (name, ("cpu", thread), (HOST[0] + at * (thick + GAP), thick))
        for at, (name, thread) in enumerate(zip(names, threads, strict=True))
    ]


def _draw_spans(
    canvas: Canvas,
    rung: Profiled,
    row: tuple[Row, int],
    where: tuple[float, float],
    place: Callable[[float], float],
    *,
    is_page: bool,
) -> None:
    """A row of bars at (top, height), with names where there is room."""
    top, thick = where
    left, right = place(0), place(_length_us(rung))
    if runs_many_steps(rung):
        _draw_many(canvas, rung, (left, right), where, on_gpu=row[0] == "gpu")
        return
    canvas.rectangle(left, top, right - left, thick, "idle")
    spans = [span for span in rung.profile.timeline if (span.row, span.thread) == row]
    for span in () if is_page else spans:
        begin, end = place(span.start_us), place(span.start_us + span.duration_us)
        canvas.rectangle(begin, top, max(end - begin, NARROWEST), thick, OPERATION_COLOURS[span.kind])
    if is_page:
        seen_us = rung.stage.profile.timeline_us if rung.stage.profile is not None else 0.0
        places = {"left": left, "scale": (right - left) / seen_us, "top": top, "height": thick}
        numbers_ = {f"data_{name}": f"{value:.6g}" for name, value in places.items()}
        with canvas.group(data_bars=rung.stage.name, data_row=row_name(*row), **numbers_):
            pass
    _names(canvas, spans, top + thick / 2, place)


def _draw_many(
    canvas: Canvas, rung: Profiled, ends: tuple[float, float], where: tuple[float, float], *, on_gpu: bool
) -> None:
    """A kernel that runs many steps, or its launches: words beside where it ends, else within."""
    (left, right), (top, thick) = ends, where
    words = _an_epoch(rung, rung.profile.launches_per_step, "launch", "es")
    if on_gpu:
        canvas.rectangle(left, top, right - left, thick, "one-kernel", opacity=PALE)
        kernels = _an_epoch(rung, rung.profile.kernels_per_step, "kernel", "s")
        words = f"{kernels}: {numbers.microseconds(rung.step_us)} us per step"
    middle = top + thick / 2 + 4
    if right + 8 + text_width(words, "small") < RIGHT:
        canvas.text(right + 8, middle, words, "faint", look="small")
    else:
        canvas.text((left + right) / 2, middle, words, anchor="middle", look="small halo")


def row_name(row: Row, thread: int) -> str:
    """A row as the page's script has it: `host`, `gpu`, or a thread of the CPU, such as `cpu 0`."""
    return f"cpu {thread}" if row == "cpu" else row


def _names(canvas: Canvas, spans: Sequence[Span], middle: float, place: Callable[[float], float]) -> None:
    """Write the name into each bar with room for it; of nested bars, only into the outer one."""
    named_until = 0.0
    shortened = [kernel_names((span.name for span in spans), limit) for limit in (32, 16)]
    for span in sorted(spans, key=lambda span: (span.start_us, -span.duration_us)):
        end = span.start_us + span.duration_us
        room = place(end) - place(span.start_us) - 6
        name = next((name for short in shortened if text_width(name := short[span.name], "small") <= room), "")
        if name and span.start_us >= named_until:
            named_until = end
            colour: Colour = "paper" if span.kind in DEEP else "on-pale"
            at = (place(span.start_us) + place(end)) / 2
            canvas.text(at, middle + 4, name, colour, anchor="middle", look="small inside")


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
        f"{name_of(rung.stage)}: {numbers.microseconds(rung.step_us)} us per step, "
        f"{numbers.per_step(rung.profile.launches_per_step)} {'calls' if rung.is_on_cpu else 'launches'} and "
        f"{numbers.per_step(rung.profile.kernels_per_step)} kernels."
        for rung in rungs
    )


def _an_epoch(rung: Profiled, per_step: float, noun: str, plural: str) -> str:
    """The number of something an epoch: `one kernel an epoch`, `2 kernels an epoch`."""
    count = round(per_step * rung.stage.timing.steps_per_epoch) if rung.stage.timing else 1
    return f"one {noun} per epoch" if count <= 1 else f"{count:,} {noun}{plural} per epoch"


def _length_us(rung: Profiled) -> float:
    """The drawn length of a stage's three steps: as timed, without the tool."""
    return STEPS * rung.step_us


def _scaled(rung: Profiled) -> Profiled:
    """The stage with the bars of its timeline scaled to three timed steps."""
    scale = _length_us(rung) / rung.profile.timeline_us
    spans = [
        msgspec.structs.replace(span, start_us=span.start_us * scale, duration_us=span.duration_us * scale)
        for span in rung.profile.timeline
    ]
    profile = msgspec.structs.replace(rung.profile, timeline=spans, timeline_us=_length_us(rung))
    return replace(rung, profile=profile)
