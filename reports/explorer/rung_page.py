"""The page's view of a rung: why, a guess, the measurement, what moved, and what bounds it next."""

from __future__ import annotations

from functools import partial

from ladder.records.profile import Span
from ladder.records.run import Results, StageResult
from reports.explorer.code import RungCode
from reports.facts import numbers
from reports.facts.hidden_copies import overlap
from reports.facts.launch_regimes import HEADINGS, change_in_full, regime
from reports.facts.profiles import grid, kernel_name
from reports.facts.run_table import MARKS, table_order
from reports.facts.stage_facts import StageFacts
from reports.facts.time_breakdown import Profiled
from reports.facts.times import median_us
from reports.figures import timeline_figure as timeline
from reports.figures import waterfall
from reports.screens.rung import bound, checks, details, judgement, measured_facts, purpose
from reports.writers.html import drawing, drawings, template
from reports.writers.page import in_html

LEAST_CHANGE = 1.1  # a rung that changed its parent's time by less is judged by this factor when a guess is scored


def rung_html(
    stage: StageResult, results: Results, code: RungCode | None = None, origin: str = "", *, is_brief: bool = False
) -> str:
    """The view as HTML; `origin` says where the code is from, and a brief view has no timelines.

    The measurements stand in elements of class `measured`, which wait for the guess.
    """
    rung = StageFacts(stage, results)
    names = [stage.name for stage in table_order(results)]
    at = names.index(stage.name)
    clock = [] if is_brief else on_clock(stage, results)
    moved = [rung.change] if rung.change is not None else []
    shown = partial(in_html, linked=set(names) - {stage.name})
    is_reference = stage.group == "reference"
    us, parent_us = median_us(stage), median_us(rung.parent)
    return template(
        "rung.html",
        stage=stage,
        kind="reference" if is_reference else regime(stage).replace(" ", "-"),
        regime="Reference" if is_reference else HEADINGS[regime(stage)],
        precision=numbers.precision(stage.precision),
        changes=change_in_full(stage, results.problem),
        parent_us=numbers.microseconds(parent_us) if parent_us is not None else "",
        children=[other.name for other in results.stages if other.below == stage.name],
        before=names[at - 1] if at else None,
        after=names[at + 1] if at + 1 < len(names) else None,
        purpose=shown(purpose(rung)),
        rung=rung,
        guessed=not is_reference and us is not None and parent_us is not None,
        marks=MARKS,
        least=numbers.ratio(LEAST_CHANGE),
        judgement=shown(judgement(rung)),
        facts=list(measured_facts(rung)),
        moved=drawings(partial(waterfall.drawn, results, moved)) if moved else [],
        overlap=overlap(rung.profiled) if rung.profiled is not None else "",
        timelines=drawing(timeline.on_one_clock(clock, results, is_page=True), "timelines") if clock else None,
        has_spans=rung.profiled is not None and bool(rung.profiled.profile.timeline),
        bound=shown(bound(rung)),
        details=shown(details(rung)),
        checks=shown(checks(rung)),
        code=code,
        origin=origin,
    )


def on_clock(stage: StageResult, results: Results) -> list[Profiled]:
    """The rung that the stage climbs from and the stage itself, as their timelines show them; empty without its own."""
    drawn = {stage.name: stage for stage in timeline.with_timeline(results)}
    names = [stage.below or "", stage.name] if stage.name in drawn else []
    return [timeline.shown(drawn[name]) for name in names if name in drawn]


def part_bars(results: Results) -> dict[str, list[str]]:
    """What each bar of a stage's timeline is, in words, for every stage that has one."""
    drawn = map(timeline.shown, timeline.with_timeline(results))
    return {profiled.stage.name: [_bar(profiled, span) for span in profiled.profile.timeline] for profiled in drawn}


def _bar(profiled: Profiled, span: Span) -> str:
    """A call or a kernel in words: `relu of naive, 1.17 us: 16 registers, 16 x 256, occupancy 100%`."""
    text = f"{kernel_name(span.name, 60)} of {profiled.stage.name}, {numbers.microseconds(span.duration_us)} us"
    use = next((kernel for kernel in profiled.profile.kernels if kernel.name == span.name), None)
    if span.row != "gpu" or use is None:
        return text
    occupancy = f", occupancy {numbers.share(use.occupancy)}" if use.occupancy is not None else ""
    return f"{text}: {use.registers} registers, {grid(use)}{occupancy}"
