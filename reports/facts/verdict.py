"""The verdict of a run or a study in three sentences: the fastest rung, the gains, and how far to trust them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from ladder.records.exactness import AS_EXACT
from ladder.records.run import Results, StageResult
from ladder.records.statistics import VERDICT_CONFIDENCE
from ladder.records.study import Point
from reports.facts import numbers
from reports.facts.baselines import fastest, overall_winner, ratio, references
from reports.facts.energy import saving
from reports.facts.grouped import grouped
from reports.facts.predictions import judged
from reports.facts.ratios import Ratio
from reports.facts.run_table import disturbed_mark, lacked_by_all, lacks_a_check, table_order
from reports.facts.stage_facts import StageFacts
from reports.facts.study_points import PointLead, StudyResults, is_disturbed, overall_winners, point_text, point_winners
from reports.facts.times import disagreement, median_us, step_times_us, step_us
from reports.facts.warnings import disturbance, worst

NAMED = 3  # rungs that a sentence names, at most
Gain = tuple[StageResult, Ratio]  # a rung, and its time beside its parent's


def verdict_sentences(results: Results) -> list[str]:
    """At most three sentences, in markdown: without a timed rung, the first tells of the fastest reference."""
    return [*_fastest(results), *_gains(results), *_trust(results)]


def _fastest(results: Results) -> Iterator[str]:
    rungs = [stage for stage in table_order(results) if stage.group != "reference" and step_us(stage) is not None]
    best = fastest(rungs or results.stages)
    if best is None:
        yield "No stage of this run has a time."
        return
    step = f"{numbers.microseconds(median_us(best))} us"
    if not rungs:
        yield f"No rung was timed; `{best.name}`, the fastest reference, takes {step} per step."
        return
    reference = overall_winner(results)
    beside = list(filter(None, (_of_reference(results), _of_first(rungs[0], best))))
    told = f": {', and '.join(beside)}" if beside else ""
    aside = "" if best.precision == "float32" else f" in {numbers.precision(best.precision)}"
    compared = {row.name: row for row in (best, rungs[0], *([reference.reference] if reference else []))}
    counts = sorted({len(step_times_us(row)) for row in compared.values()})
    processes = f"{f'{counts[0]} to ' * (len(counts) > 1)}{counts[-1]} process{'es' * (counts[-1] > 1)}"
    yield (
        f"The fastest rung, `{best.name}`, trains a step in {step}{aside}{told}{_disturbed(compared)}."
        f"{f' Brackets hold {VERDICT_CONFIDENCE:.1%} intervals, from {processes} each.' if 'x (' in told else ''}"
    )


def _disturbed(compared: Mapping[str, StageResult]) -> str:
    """The end of a sentence on times that other work disturbed, and how far these are off; empty without any."""
    apart = {name: disagreement(stage) for name, stage in compared.items() if disturbed_mark(stage)}
    by = {name: f" (its processes differ by {numbers.share(gap)})" * (gap > 0.001) for name, gap in apart.items()}
    few = [f"`{name}`{words}" for name, words in by.items()]
    return f"; other work disturbed {numbers.listing(few)}" if few else ""


def _of_first(first: StageResult, best: StageResult) -> str:
    factor = ratio(first, best)
    if first is best or factor is None:
        return ""
    aside = "" if first.precision == best.precision else f" in {numbers.precision(first.precision)}"
    return f"{factor.as_fast_as(f'`{first.name}`')}{aside}"


def _of_reference(results: Results) -> str:
    lead = overall_winner(results)
    if lead is None:
        return ""
    both = f"{numbers.microseconds(lead.own_us)} us against {numbers.microseconds(lead.reference_us)}"
    clock = f" by GPU time ({both})" if lead.on_gpu_time else ""
    told = lead.ratio.as_fast_as(f"`{lead.reference.name}`")
    own = lead.stage
    rough = fastest(one for one in references(results) if (one.device, one.takes_gpus) == (own.device, own.takes_gpus))
    aside, us = "", median_us(rough) if rough is not None else None
    if rough is not None and us is not None and us < lead.reference_us:
        aside = f" (`{rough.name}`, in {numbers.precision(rough.precision)}, takes {numbers.microseconds(us)} us)"
    return f"{told}{clock}, the fastest reference {AS_EXACT}{aside}"


def gains(results: Results) -> list[Gain]:
    """Every rung with a time and a timed parent, in the order of the table."""
    all_gains = ((stage, ratio(results.stage(stage.below), stage)) for stage in table_order(results))
    return [(stage, factor) for stage, factor in all_gains if factor is not None]


def _gains(results: Results) -> Iterator[str]:
    every = gains(results)
    all_gains = [gain for gain in every if not StageFacts(gain[0], results).runs_its_parents_kernels]
    if not all_gains:
        return
    beyond = [gain for gain in all_gains if not gain[1].is_noise]
    faster = sorted((gain for gain in beyond if gain[1].times > 1), key=lambda gain: -gain[1].times)
    slower = [f"`{stage.name}`" for stage, factor in beyond if factor.times < 1]
    named = [
        f"`{stage.name}` ({numbers.ratio(factor.times)} as fast as `{stage.below}`)" for stage, factor in faster[:NAMED]
    ]
    most = f", most of all {numbers.listing(named)}" if named else ""
    noise = len(all_gains) - len(beyond)
    counts = [f"{noise} cannot be told from {'its parent' if noise == 1 else 'their parents'}"] if noise else []
    if slower:
        who = numbers.listing(slower) if len(slower) <= NAMED else str(len(slower))
        counts.append(f"{who} {'is' if len(slower) == 1 else 'are'} slower")
    if idle := len(every) - len(all_gains):
        run = "runs the kernels of its parent" if idle == 1 else "run the kernels of their parents"
        counts.append(f"{idle} more {run}")
    others = f"; {numbers.listing(counts)}" if counts else ""
    rungs = "rung is faster than its parent" if len(all_gains) == 1 else "rungs are faster than their parents"
    yield f"{len(faster)} of {len(all_gains)} {rungs}{most}{others}."


def _trust(results: Results) -> Iterator[str]:
    passed = [stage for stage in results.stages if stage.status == "passed"]
    references = sum(stage.group == "reference" for stage in passed)
    kinds = {"rung": len(passed) - references, "reference": references}
    parts = []
    if named := [numbers.count(many, kind) for kind, many in kinds.items() if many]:
        parts.append(f"{numbers.listing(named)} passed {_every_check([(stage, results) for stage in passed])}")
    for status in ("failed", "crashed"):
        if names := [f"`{stage.name}`" for stage in results.stages if stage.status == status]:
            parts.append(f"{numbers.listing(names)} {status}")
    if known := judged(results):
        hits, undecided = (sum(flags) for flags in zip(*((one.hit, one.undecided) for _, one in known), strict=True))
        were = "was" if 1 in (hits, len(known)) else "were"
        open_ = f" ({undecided} undecided)" * bool(undecided)
        parts.append(f"{hits} of {numbers.count(len(known), 'prediction')} {were} hit{open_}")
    text = numbers.listing(parts) if parts else ""
    told = [f"{text[0].upper()}{text[1:]}"] if parts else []
    processes = [process for stage in results.stages if step_us(stage) is not None for process in stage.processes]
    if many := sum(bool(process.disturbed) for process in processes):
        told.append(f"{many} of {len(processes)} processes {'was' if many == 1 else 'were'} disturbed")
    if skipped := sum(stage.status == "skipped" for stage in results.stages):
        were = "was" if skipped == 1 else "were"
        told.append(f"{skipped} of {len(results.stages)} stages {were} skipped")
    notices = " (see the notices)" * (len(told) > bool(parts) or any(lacks_a_check(stage, results) for stage in passed))
    if told:
        yield f"{'; '.join(told)}{notices}."


def _every_check(stages: Sequence[tuple[StageResult, Results]]) -> str:
    """What stages of runs passed: `every check`, or how many of them all but a few."""
    lacking = sum(lacks_a_check(stage, results) for stage, results in stages)
    of_none = any(lacked_by_all(results) for _, results in stages)
    if lacking:
        return f"({lacking} of them lack a check{' that others had' * of_none})"
    return f"every check{' that was made' * of_none}"


def study_sentences(results: StudyResults) -> list[str]:
    """At most three sentences, in markdown; without references the first tells of the largest effect of a rung."""
    return [*_study_leads(results), *_study_trust(results)]


def study_savings(results: StudyResults) -> Iterator[str]:
    """A sentence for each point whose energy was measured, in markdown."""
    for point in results.measured:
        if saved := saving(results.runs[point.name]):
            yield f"{_at(point)[:1].upper()}{_at(point)[1:]}{saved}."


def _study_leads(results: StudyResults) -> Iterator[str]:
    leads = sorted(overall_winners(results), key=lambda winner: winner.lead.ratio.times)
    if not leads:
        if effect := largest_effect(results, results.measured):
            yield f"{effect}."
        return
    largest = leads[-1]
    rung, reference = (f"`{stage.name}`" for stage in (largest.lead.stage, largest.lead.reference))
    bound = "at most " * bool(largest.missing)
    named = f"{_at(largest.point)}{rung} is {bound}{largest.lead.ratio.as_fast_as(reference)}{_clock(largest)}"
    told = f"{named[0].upper()}{named[1:]}, the fastest reference {AS_EXACT}"
    yield f"{told}: the largest lead of any point's fastest rung." if leads[1:] else f"{told}."
    yield from _course(results) if leads[1:] else ()


def _course(results: StudyResults) -> Iterator[str]:
    """Where a rung is ahead: the first lead, the least and the last of each precision."""
    winners = list(point_winners(results))
    behind = [one for one in winners if one.lead.ratio.is_noise or one.lead.ratio.times < 1]
    but = f" but {numbers.listing(dict.fromkeys(point_text(one.point) for one in behind))}" if behind else ""
    told = []
    for precision, ours in grouped((one.lead.precision, one) for one in winners).items():
        least = min(ours, key=lambda one: one.lead.ratio.times)
        leads = [
            f"{'at most ' * bool(one.missing)}{numbers.ratio(one.lead.ratio.times)} {_at(one.point)}"
            f"{'(the least)' * (one is least)}".strip()
            for one in ours
            if one in (ours[0], least, ours[-1])
        ]
        told.append(f"in {precision} by {numbers.listing(leads)}")
    yield f"A rung is ahead at every point compared{but}: {'; '.join(told)}."


def largest_effect(results: StudyResults, points: Sequence[Point], *, spread: bool = True) -> str:
    """The rung that differs most from its parent at one of these points, or that none does beyond the noise.

    In markdown; empty without a rung whose parent has a time.
    """
    effects = [(point, *gain) for point in points for gain in gains(results.runs[point.name])]
    beyond = [effect for effect in effects if not effect[2].is_noise]
    if not beyond:
        return "No rung differs from its parent beyond the noise" if effects else ""
    point, stage, factor = max(beyond, key=lambda effect: abs(math.log(effect[2].times)))
    over = factor.as_fast_as(f"`{stage.below}`", spread=spread)
    if factor.times < 1:
        times = [1 / end for end in (factor.times, *reversed(factor.interval))]
        slower = numbers.ratio_spread(*times) if spread else numbers.ratio(times[0])
        over = f"{slower} slower than its parent `{stage.below}`"
    told = f"`{stage.name}` is {over} {_at(point)}".rstrip()
    return f"{told}, the largest effect"


def _clock(winner: PointLead) -> str:
    return " by GPU time" if winner.lead.on_gpu_time else ""


def _at(point: Point) -> str:
    return f"at {point_text(point)} " if point.values else ""


def _study_trust(results: StudyResults) -> Iterator[str]:
    runs = [results.runs[point.name] for point in results.measured]
    stages = [stage for run in runs for stage in run.stages]
    judged_at = [(stage, run) for run in runs for stage in run.stages if step_us(stage) is not None]
    timed = [stage for stage, _ in judged_at]
    points = numbers.count(len(results.measured), "point")
    parts = [f"{numbers.count(len(timed), 'measurement')} at {points} passed {_every_check(judged_at)}"]
    for status in ("failed", "crashed"):
        if number := sum(stage.status == status for stage in stages):
            parts.append(f"{number} {status}")
    reasons = [disturbance(process) for stage in timed if is_disturbed(stage) for process in stage.processes]
    if disturbed := sum(map(is_disturbed, timed)):
        parts.append(f"every process of {disturbed} of them was disturbed: {worst(reasons)}")
    if timed:
        yield f"{numbers.listing(parts)}."
