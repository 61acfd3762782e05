"""A report's screen for each rung: predicted, measured, what moved, what bounds it next; the rest unfolds."""

from __future__ import annotations

from collections.abc import Iterator

from ladder.records.profile import Profile
from ladder.records.run import Check, Results, StageResult
from ladder.records.statistics import BOOTSTRAP_PROCESSES, MEDIAN_CONFIDENCE, median_interval
from reports.facts import numbers
from reports.facts.baselines import lead, ratio, sm_mhz, step_cycles
from reports.facts.bottleneck import advice_on
from reports.facts.numbers import line
from reports.facts.predictions import outcome
from reports.facts.regimes import change_in_full
from reports.facts.summary import measured_runs, reason, title_of
from reports.facts.time_breakdown import Change, changes, profiled
from reports.facts.times import median_us, step_times_us
from reports.markdown.profile_section import stage_profile_blocks
from reports.markdown.tables import cell, details, table

MOST_PARTS = 4  # parts of a change that are named
PART_SHOWN = 0.05  # share of the largest part, and
STEP_SHOWN = 0.005  # ... of the step; a smaller part is not named


def rung_section(stage: StageResult, results: Results) -> Iterator[str]:
    """One rung, without its parent if that was not timed."""
    yield f"### `{stage.name}`: {line(title_of(stage))}"
    if stage.below:
        yield f"From `{stage.below}`: {line(change_in_full(stage))}."
    yield from _screen(stage, results)
    yield from details("Why, kernels, host and checks", _details(stage, results))


def reference_section(stage: StageResult, results: Results) -> Iterator[str]:
    """One reference, whole."""
    yield f"### `{stage.name}`: {line(title_of(stage))}"
    yield from _screen(stage, results)
    yield from _details(stage, results)


def _screen(stage: StageResult, results: Results) -> Iterator[str]:
    if stage.status != "passed":
        yield f"**{stage.status.capitalize()}**: {line(reason(stage))}"
        return
    if stage.timing is None:
        return
    parent = next((one for one in results.stages if one.name == stage.below), None)
    factor = ratio(parent, stage)
    predicted, verdict = outcome(stage, results)
    measured = f"{numbers.microseconds(median_us(stage))} us"
    if factor is not None:
        measured += f", {factor.saying(f' of `{stage.below}`')}"
    if predicted or factor:
        cells = (cell(predicted) or numbers.MISSING, cell(measured), cell(verdict) or numbers.MISSING)
        yield table(("Predicted", "Measured", "Verdict"), [cells])
    change = next((change for change in changes(results) if change.rung.stage is stage), None)
    if change is not None and (text := moved(change)):
        yield f"**Moved:** {text}"
    if stage.device == "cpu" or profiled(stage) is not None:
        yield f"**Bound now:** {line(str(advice_on(results, stage)))}"


def moved(change: Change) -> str:
    """The parts of a step that changed most, in us: `host launching -33.3; products -1.1 us.`; empty in noise."""
    if change.is_noise:
        return ""
    parts = sorted(change.detailed_us.items(), key=lambda part: -abs(part[1]))
    least = max(PART_SHOWN * abs(parts[0][1]), STEP_SHOWN * change.slower_us)
    named = [f"{name} {numbers.change(us, change.slower_us)}" for name, us in parts[:MOST_PARTS] if abs(us) >= least]
    text = f"{'; '.join(named)} us." if named else ""
    if text and (change.parent.is_entangled or change.rung.is_entangled):
        text += " Its kernels overlap, so they are not divided by operation."
    return text


def _details(stage: StageResult, results: Results) -> Iterator[str]:
    doc = stage.doc
    named = [] if doc is None else [("Why", doc.why), ("Change", doc.change), ("Expect", doc.expect)]
    named.append(("Measured", _measured(stage, results)))
    paragraphs = [(name, text) for name, text in named if text]
    if paragraphs:
        yield table(("", ""), [(f"**{name}**", cell(f"{text[0].upper()}{text[1:]}")) for name, text in paragraphs])
    yield from stage_profile_blocks(stage)
    if stage.checks:
        yield table(
            ("Check", "Error", "Limit", "Verdict"),
            [
                (cell(check.what), numbers.error(check.error), numbers.error(check.limit), cell(_verdict(check)))
                for check in stage.checks
            ],
        )


def _verdict(check: Check) -> str:
    if not check.judged:
        return f"not judged: {check.note}"
    return "passed" if check.passed else "**failed**"


def _measured(stage: StageResult, results: Results) -> str:
    """The stage's measurements in a sentence; empty without a time."""
    timing = stage.timing
    if timing is None or stage.status != "passed":
        return ""
    parts = [
        f"{numbers.spread_milliseconds(timing.epoch_s)} ms/epoch over {measured_runs(timing)}",
        *_known(stage, timing.steps_per_epoch),
        f"{numbers.microseconds(median_us(stage))} us/step{_in_cycles(stage)}",
        *_compared(stage, results),
    ]
    if timing.gpu_epoch_s is not None:
        parts.append(f"{numbers.milliseconds(timing.gpu_epoch_s)} ms/epoch between GPU events")
    if stage.profile is not None:
        parts.append(_counted(stage.profile))
    if timing.gpu_memory_mib is not None:
        parts.append(f"{numbers.memory(timing.gpu_memory_mib)} of GPU memory")
    parts.append(f"prepared in {numbers.duration(timing.prepare_s)}")
    if stage.metrics is not None:
        if stage.metrics.final_loss is not None:  # no epoch of a short run has sparse metrics
            parts.append(f"final training loss {numbers.loss(stage.metrics.final_loss)}")
        if stage.metrics.validation:
            last = stage.metrics.validation[-1]
            result = f"{numbers.loss(last.loss)} and accuracy {numbers.percent(last.accuracy)}"
            parts.append(f"its own validation after epoch {last.epoch}: loss {result}")
    if timing.throttled:
        parts.append("the GPU was throttled")
    return "; ".join(parts) + "."


def _in_cycles(stage: StageResult) -> str:
    """The step in clock cycles, with the clock; empty without a clock."""
    clock, cycles = sm_mhz(stage), step_cycles(stage)
    return "" if clock is None else f" ({numbers.cycles(cycles)} cycles at {clock:,.0f} MHz)"


def _known(stage: StageResult, steps: int) -> Iterator[str]:
    """The interval of the median; nothing with too few processes."""
    times = step_times_us(stage)
    if len(times) >= BOOTSTRAP_PROCESSES:
        known = median_interval(times)
        low, high = (numbers.milliseconds(end * steps / 1e6) for end in (known.low, known.high))
        yield f"{MEDIAN_CONFIDENCE:.0%} interval of the median {low}-{high}, from {len(times)} processes"


def _compared(stage: StageResult, results: Results) -> Iterator[str]:
    """Its speed relative to the fastest reference that counts for it."""
    if (found := lead(stage, results)) is None:
        return
    reference = found.reference
    on = f" on the {reference.device.upper()}" if reference.device else ""
    if reference is stage:
        yield f"the fastest {found.precision} reference{on}"
    else:
        clock = " on GPU time" if found.on_gpu_time else ""
        which = f"`{reference.name}` in {numbers.precision(reference.precision)}{on}"
        yield found.ratio.saying(f" of the fastest reference, {which}{clock}")


def _counted(profile: Profile) -> str:
    launches, kernels = numbers.per_step(profile.launches_per_step), numbers.per_step(profile.kernels_per_step)
    graphs = profile.graph_launches_per_epoch
    aside = f" ({numbers.count(round(graphs), 'graph')} an epoch)" if graphs else ""
    return f"launches per step {launches}{aside}, kernels per step {kernels}"
