"""A rung, or a reference, as the terminal, the report and the page show it: looked up once, laid out by each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ladder.records.profile import KernelUse
from ladder.records.run import Check, Results, StageResult
from reports.facts import numbers
from reports.facts.ablations import overlap
from reports.facts.baselines import Lead, lead, ratio, sm_mhz, step_cycles
from reports.facts.bottleneck import advice_on
from reports.facts.findings import found_of
from reports.facts.kernel_bottleneck import Advice
from reports.facts.launch_regimes import HEADINGS, change_in_full, change_in_words, regime
from reports.facts.predictions import outcome
from reports.facts.profiles import agreement, grid, host_lines, kernel_names, seen_by
from reports.facts.ratios import Ratio
from reports.facts.resolved_recipe import ResolvedPart, resolved_recipe
from reports.facts.run_table import disturbed_mark, measured_runs, name_of, reason, title_of
from reports.facts.time_breakdown import Change, Profiled, changes, profiled
from reports.facts.times import median_us

NEAR = 0.1  # share of the limit; a passed check with a larger error is drawn darker
MOST_PARTS = 4  # parts of a change that are named
PART_SHOWN = 0.05  # share of the largest part, and
STEP_SHOWN = 0.005  # ... of the step; a smaller part is not named


@dataclass(frozen=True)
class Cell:
    """A check as a cell: its name, its class in the style sheet, its error and its limit."""

    what: str
    look: str  # `far`, `near`, `broken` or `open`
    error: str
    limit: str
    verdict: str  # `passed`, `failed`, or why it was not judged

    @property
    def words(self) -> str:
        """The check in a sentence, to show beside its cell."""
        if self.look == "open":
            return f"{self.what}: {self.verdict}"
        return f"{self.what}: {self.error} of {self.limit}, {self.verdict}"


@dataclass(frozen=True)
class KernelRow:
    """A kernel of a step, as text."""

    name: str  # shortened
    full: str
    kind: str
    us: str  # a step
    threads: str  # of the CPU
    registers: str
    grid: str
    shared: str
    occupancy: str
    bytes: str


@dataclass(frozen=True)
class RungView:
    """A stage of a run, with everything that is known of it beside the others."""

    stage: StageResult
    shown: str  # its name, with `(CPU)` where that is not part of it
    title: str
    precision: str
    kind: str  # `reference`, or the regime as a class of the style sheet
    regime: str  # in words
    words: str  # what it changes, shortest
    change_in_full: str  # what it changes, in a line
    parent: StageResult | None
    parent_us: str  # empty without a time
    children: list[str]
    reason: str  # why it did not pass; empty if it did
    us: str  # a step; empty without a time
    mark: str  # of a disturbed time
    versus_parent: Ratio | None
    lead: Lead | None  # over the fastest other reference
    predicted: str  # for this network and batch; may be empty
    verdict: str  # on the prediction
    change: Change | None  # of its profile from its parent's
    profiled: Profiled | None
    advice: Advice | None
    recipe: list[ResolvedPart]
    seen_by: str  # the profiler; empty without a profile
    agreement: str  # of two profilers, in a sentence; empty with fewer
    overlap: str  # how much of its copies hides behind kernels, in a sentence; empty without

    @property
    def is_reference(self) -> bool:
        """Whether it is no rung."""
        return self.stage.group == "reference"

    @property
    def found(self) -> str:
        """What the author found; empty without it."""
        return found_of(self.stage)

    @property
    def moved(self) -> str:
        """The parts of a step that changed most, in us: `host launching -33.3; products -1.1 us.`; empty in noise."""
        change = self.change
        if change is None or change.is_noise:
            return ""
        parts = sorted(change.detailed_us.items(), key=lambda part: -abs(part[1]))
        least = max(PART_SHOWN * abs(parts[0][1]), STEP_SHOWN * change.slower_us)
        named = [
            f"{name} {numbers.change(us, change.slower_us)}" for name, us in parts[:MOST_PARTS] if abs(us) >= least
        ]
        text = f"{'; '.join(named)} us." if named else ""
        if text and (change.parent.is_entangled or change.rung.is_entangled):
            text += " Its kernels overlap, so they are not divided by operation."
        return text

    @property
    def checks(self) -> list[Cell]:
        """Its checks as cells."""
        return [cell(check) for check in self.stage.checks]

    @property
    def host(self) -> list[tuple[str, str]]:
        """The host's work in an epoch, as (activity, amount)."""
        return list(host_lines(self.profiled.profile)) if self.profiled is not None else []

    def kernels(self, most: int, letters: int = 34) -> list[KernelRow]:
        """The first kernels of a step in the order of their start, their names cut to so many letters."""
        kernels = self.profiled.profile.kernels[:most] if self.profiled is not None else []
        names = kernel_names((kernel.name for kernel in kernels), letters)
        return [_kernel(kernel, names[kernel.name]) for kernel in kernels]

    def facts(self) -> Iterator[tuple[str, str]]:
        """What was measured beside the time, as (words, number)."""
        stage, timing = self.stage, self.stage.timing
        if timing is None or not self.us:
            return
        if self.versus_parent is not None:
            yield f"as fast as {stage.below}", self.versus_parent.text
        if self.lead is not None:
            clock = ", on GPU time" if self.lead.on_gpu_time else ""
            yield f"as fast as the fastest reference, {self.lead.reference.name}{clock}", self.lead.ratio.text
        if stage.bounds is not None and (floor := stage.bounds.design_floor_us):
            times = (median_us(stage) or 0.0) / floor
            yield f"the floor of its design, {numbers.microseconds(floor)} us", numbers.ratio(times)
        if stage.profile is not None:
            launches, kernels = stage.profile.launches_per_step, stage.profile.kernels_per_step
            calls = "calls from Python" if stage.device == "cpu" else "launches"
            yield f"{calls} and kernels a step", f"{numbers.per_step(launches)}, {numbers.per_step(kernels)}"
        if (clock_mhz := sm_mhz(stage)) is not None:
            yield f"cycles a step at {clock_mhz:,.0f} MHz", numbers.cycles(step_cycles(stage))
        if stage.metrics is not None and stage.metrics.test_accuracy is not None:
            yield "test accuracy", numbers.percent(stage.metrics.test_accuracy)
        if stage.metrics is not None and stage.metrics.validation:
            last = stage.metrics.validation[-1]
            text = f"loss {numbers.loss(last.loss)}, accuracy {numbers.percent(last.accuracy)}"
            yield f"its own validation after epoch {last.epoch}", text
        yield f"ms/epoch, {measured_runs(timing)}", numbers.spread_milliseconds(timing.epoch_s)
        if timing.gpu_epoch_s is not None:
            yield "ms/epoch between GPU events", numbers.milliseconds(timing.gpu_epoch_s)


def rung_view(stage: StageResult, results: Results) -> RungView:
    """A stage of a run."""
    stages = {stage.name: stage for stage in results.stages}
    parent, best_lead, rung = stages.get(stage.below or ""), lead(stage, results), profiled(stage)
    us, parent_us = median_us(stage), median_us(parent)
    predicted, verdict = outcome(stage, results)
    is_reference, way = stage.group == "reference", regime(stage)
    return RungView(
        stage=stage,
        shown=name_of(stage),
        title=title_of(stage),
        precision=numbers.precision(stage.precision),
        kind="reference" if is_reference else way.replace(" ", "-"),
        regime="Reference" if is_reference else HEADINGS[way],
        words=change_in_words(stage),
        change_in_full=change_in_full(stage),
        parent=parent,
        parent_us=numbers.microseconds(parent_us) if parent_us is not None else "",
        children=[other.name for other in results.stages if other.below == stage.name],
        reason=reason(stage) if stage.status != "passed" else "",
        us=numbers.microseconds(us) if us is not None else "",
        mark=disturbed_mark(stage),
        versus_parent=ratio(parent, stage),
        lead=best_lead if best_lead is not None and best_lead.reference is not stage else None,
        predicted=predicted,
        verdict=verdict,
        change=next((change for change in changes(results) if change.rung.stage is stage), None),
        profiled=rung,
        advice=advice_on(results, stage) if rung is not None or (us is not None and stage.device == "cpu") else None,
        recipe=resolved_recipe(stage, results),
        seen_by=seen_by(rung.profile) if rung is not None else "",
        agreement=agreement(stage),
        overlap=overlap(rung) if rung is not None else "",
    )


def cell(check: Check) -> Cell:
    """A check's cell; `near` if a passed error is more than a tenth of its limit, `open` if it was not judged."""
    error, limit = numbers.error(check.error), numbers.error(check.limit)
    noted = f" ({check.note})" if check.note else ""
    if not check.passed:
        return Cell(check.what, "broken", error, limit, f"failed{noted}")
    if not check.judged:
        return Cell(check.what, "open", error, limit, f"not judged: {check.note}" if check.note else "not judged")
    share = (check.error or 0.0) / check.limit if check.limit else 0.0
    return Cell(check.what, "near" if share > NEAR else "far", error, limit, f"passed{noted}")


def _kernel(kernel: KernelUse, name: str) -> KernelRow:
    return KernelRow(
        name=name,
        full=kernel.name,
        kind=kernel.kind,
        us=numbers.microseconds(kernel.us_per_step),
        threads=f"{kernel.blocks}",
        registers=f"{kernel.registers}",
        grid=grid(kernel),
        shared=numbers.size(kernel.shared_bytes),
        occupancy=numbers.share(kernel.occupancy),
        bytes=numbers.MISSING if kernel.bytes is None else numbers.size(kernel.bytes),
    )
