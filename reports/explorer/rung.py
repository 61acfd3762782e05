"""The view of a rung: why, a guess, the measurement, what moved, and what bounds it next."""

from __future__ import annotations

from collections.abc import Iterator

from ladder.records.profile import KernelUse, Span
from ladder.records.run import Results, StageResult
from reports.explorer.code import Code
from reports.explorer.html import drawing, template
from reports.explorer.script_data import LEAST_CHANGE
from reports.explorer.trust import cell
from reports.facts import numbers
from reports.facts.advice import Advice
from reports.facts.baselines import lead, ratio
from reports.facts.bottleneck import advice_on
from reports.facts.numbers import precision
from reports.facts.predictions import outcome
from reports.facts.profiles import grid, kernel_name, kernel_names, seen_by
from reports.facts.recipe import resolved_recipe
from reports.facts.regimes import HEADINGS, change_in_full, regime
from reports.facts.summary import FOUND, MARKS, disturbed_mark, measured_runs, name_of, reason, table_order, title_of
from reports.facts.time_breakdown import Profiled, changes, profiled
from reports.facts.times import step_us
from reports.figures import timeline, waterfall

MOST_KERNELS = 20  # rows of the table; a library may launch a hundred


def rung_view(
    stage: StageResult, results: Results, code: Code | None = None, origin: str = "", *, is_brief: bool = False
) -> str:
    """The view as HTML; `origin` says where the code is from, and a brief view has no timelines.

    The measurements stand in elements of class `measured`, which wait for the guess.
    """
    stages = {one.name: one for one in table_order(results)}
    names = list(stages)
    at = names.index(stage.name)
    one = profiled(stage)
    change = next((change for change in changes(results) if change.rung.stage is stage), None)
    parent = stages.get(stage.below or "")
    timed = step_us(stage)
    clock = [] if is_brief else on_clock(stage, results)
    doc = stage.doc
    return template(
        "rung.html",
        stage=stage,
        shown=name_of(stage),
        title=title_of(stage),
        precision=precision(stage.precision),
        kind="reference" if stage.group == "reference" else regime(stage).replace(" ", "-"),
        regime="Reference" if stage.group == "reference" else HEADINGS[regime(stage)],
        words=change_in_full(stage),
        recipe=resolved_recipe(stage, results),
        parent=parent,
        parent_us=_text(parent),
        children=[other.name for other in results.stages if other.below == stage.name],
        before=names[at - 1] if at else None,
        after=names[at + 1] if at + 1 < len(names) else None,
        doc=doc,
        found_by=FOUND,
        reason=reason(stage) if stage.status != "passed" else "",
        guessed=stage.group != "reference" and timed is not None and parent is not None and step_us(parent) is not None,
        time=_text(stage),
        mark=disturbed_mark(stage),
        marks=MARKS,
        predicted=outcome(stage, results),
        least=numbers.ratio(LEAST_CHANGE),
        facts=list(_facts(stage, results, parent)),
        change=drawing(waterfall.drawn(results, [change])) if change is not None else None,
        timelines=drawing(timeline.on_one_clock(clock, results, is_page=True), "timelines") if clock else None,
        has_spans=one is not None and bool(one.profile.timeline),
        kernels=_kernels(one.profile.kernels) if one is not None else [],
        kernels_shown=_kernels_shown(len(one.profile.kernels)) if one is not None else "",
        seen_by=seen_by(one.profile) if one is not None else "",
        advice=_advice(stage, results),
        code=code,
        origin=origin,
        checks=[cell(check) for check in stage.checks],
    )


def on_clock(stage: StageResult, results: Results) -> list[Profiled]:
    """The rung that the stage climbs from and the stage itself, as their timelines show them; empty without its own."""
    drawn = {one.name: one for one in timeline.with_timeline(results)}
    names = [stage.below or "", stage.name] if stage.name in drawn else []
    return [timeline.shown(drawn[name]) for name in names if name in drawn]


def bars(results: Results) -> dict[str, list[str]]:
    """What each bar of a stage's timeline is, in words, for every stage that has one."""
    drawn = map(timeline.shown, timeline.with_timeline(results))
    return {one.stage.name: [_bar(one, span) for span in one.profile.timeline] for one in drawn}


def _bar(one: Profiled, span: Span) -> str:
    """A call or a kernel in words: `relu of naive, 1.17 us: 16 registers, 16 x 256, occupancy 100%`."""
    text = f"{kernel_name(span.name, 60)} of {one.stage.name}, {numbers.microseconds(span.duration_us)} us"
    use = next((kernel for kernel in one.profile.kernels if kernel.name == span.name), None)
    if span.row != "gpu" or use is None:
        return text
    occupancy = f", occupancy {numbers.share(use.occupancy)}" if use.occupancy is not None else ""
    return f"{text}: {use.registers} registers, {grid(use)}{occupancy}"


def _text(stage: StageResult | None) -> str:
    """The stage's us/step as text; empty without a time."""
    timed = step_us(stage)
    return numbers.microseconds(timed.median) if timed else ""


def _facts(stage: StageResult, results: Results, parent: StageResult | None) -> Iterator[tuple[str, str]]:
    """What was measured beside the time, as (words, number)."""
    timing = stage.timing
    if timing is None or stage.status != "passed":
        return
    if parent is not None and (factor := ratio(parent, stage)) is not None:
        yield f"as fast as {parent.name}", factor.text
    found = lead(stage, results)
    if found is not None and found.reference is not stage:
        clock = ", on GPU time" if found.on_gpu_time else ""
        yield f"as fast as the fastest reference, {found.reference.name}{clock}", found.ratio.text
    if stage.bounds is not None and (floor := stage.bounds.design_floor_us):
        yield f"the floor of its design, {numbers.microseconds(floor)} us", numbers.ratio(timing.step_us / floor)
    if stage.profile is not None:
        launches, kernels = stage.profile.launches_per_step, stage.profile.kernels_per_step
        calls = "calls from Python" if stage.device == "cpu" else "launches"
        yield f"{calls} and kernels a step", f"{numbers.per_step(launches)}, {numbers.per_step(kernels)}"
    if stage.metrics is not None and stage.metrics.test_accuracy is not None:
        yield "test accuracy", numbers.percent(stage.metrics.test_accuracy)
    yield f"ms/epoch, {measured_runs(timing)}", numbers.spread_milliseconds(timing.epoch_s)


def _kernels_shown(count: int) -> str:
    """How many kernels the table has: `3 kernels`, or `The first 20 of 29 kernels`."""
    return f"The first {MOST_KERNELS} of {count} kernels" if count > MOST_KERNELS else numbers.count(count, "kernel")


def _kernels(kernels: list[KernelUse]) -> list[dict[str, str]]:
    """The kernels of a step in the order of their start, as text."""
    shown = kernels[:MOST_KERNELS]
    names = kernel_names((kernel.name for kernel in shown), 34)
    return [
        {
            "name": names[kernel.name],
            "full": kernel.name,
            "kind": kernel.kind,
            "threads": f"{kernel.blocks}",
            "us": numbers.microseconds(kernel.us_per_step),
            "registers": f"{kernel.registers}",
            "grid": grid(kernel),
            "shared": numbers.size(kernel.shared_bytes),
            "occupancy": numbers.share(kernel.occupancy),
            "bytes": numbers.MISSING if kernel.bytes is None else numbers.size(kernel.bytes),
        }
        for kernel in shown
    ]


def _advice(stage: StageResult, results: Results) -> Advice | None:
    """What bounds the stage next; None without a profile or a time on the CPU."""
    is_timed_on_cpu = stage.device == "cpu" and stage.status == "passed" and stage.timing and stage.timing.step_us > 0
    return advice_on(results, stage) if is_timed_on_cpu or profiled(stage) is not None else None
