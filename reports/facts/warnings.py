"""The notices beside a run's table: other data, missing rows, times to be read with care."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from ladder.records.exactness import FAR_BEHIND_IN_WORDS, far_behind, settled
from ladder.records.limits_record import SHARED
from ladder.records.run import Process, Results, StageResult, Timing, lost_in_words
from ladder.records.statistics import median_interval
from reports.facts import numbers
from reports.facts.baselines import sm_mhz
from reports.facts.grouped import grouped
from reports.facts.run_table import lacked_by_all, measured_runs, not_made, passed_in_words, reason, undecided_for_all
from reports.facts.times import disagreement, step_times_us

DISAGREEMENT = 0.05  # share; placement and clocks make a stage's processes differ by a few per cent anyway
NAMED_STAGES = 6  # a notice about more stages gives their number instead
MOST_NAMED = 12  # whose rows have a mark
SHARE = re.compile(r"(\d+)%")
OLD_WAIT, NEW_WAIT = "waited for a busy core for", "its threads waited for a core for"
CLOCK_TOLERANCE = 0.03  # share of the locked clock; a power cap or another user may override the lock


@dataclass(frozen=True)
class Notice:
    """A sentence about a run; a loud one stands before everything else."""

    text: str
    loud: bool = False


def notices(results: Results, *, rows: bool = True) -> list[Notice]:
    """Every notice about a run, the loud ones first; without `rows` none that a row of the report tells."""
    return [
        *_data_notices(results),
        *_gpu_notices(results),
        *(_row_notices(results) if rows else ()),
        *_retry_notices(results),
        *(_profile_notices(results) if rows else ()),
        *(_shortened_notices(results) if rows else ()),
        *(_left_out_notices(results) if rows else ()),
        *_timing_notices(results),
    ]


def _data_notices(results: Results) -> Iterable[Notice]:
    problem = results.problem
    if problem.is_mnist:
        return
    if problem.dataset_source.startswith("drawn by seed"):
        yield Notice(f"The data is {problem.dataset}, NOT MNIST; accuracies say nothing about MNIST.", loud=True)
    else:  # users who bring their own data know it
        yield Notice(f"The data is {problem.dataset} ({problem.dataset_source}), not MNIST.")


def _gpu_notices(results: Results) -> Iterable[Notice]:
    if not any(stage.device == "gpu" for stage in results.stages):
        yield Notice("This run measured no stage on a GPU.")
    untold = results.environment.get("gpu_does_not_tell")
    if isinstance(untold, list) and untold:
        values = numbers.line(numbers.listing(map(str, untold)))
        yield Notice(f"NVML does not report this GPU's {values}: a run cannot see what they would show.")
    if (locked := results.settings.lock_clocks_mhz) is not None:
        read = {stage.name: mhz for stage in results.stages if (mhz := sm_mhz(stage)) is not None}
        off = {name: mhz for name, mhz in read.items() if abs(mhz / locked - 1) > CLOCK_TOLERANCE}
        others = [f"{name} ran at {mhz:,.0f} MHz" for name, mhz in off.items()]
        ran = f", but {numbers.listing(others)}" if others else ""
        yield Notice(f"The GPU's SM clock was locked at {locked:,} MHz (--lock-clocks){ran}.")


def _row_notices(results: Results) -> Iterable[Notice]:
    """One notice a reason: without a GPU, most rows share theirs."""
    for status in ("failed", "crashed", "skipped"):
        named = ((reason(stage), stage.name) for stage in results.stages if stage.status == status)
        for why, names in grouped(named).items():
            was = ("was " if len(names) == 1 else "were ") * (status == "skipped")
            yield Notice(f"{numbers.listing(names)} {was}{status}: {why}")
    yield from map(Notice, lacking(results.stages))
    yield from map(Notice, not_made_in_words(results))
    crashed = ((stage.crashed_before, stage.name) for stage in results.stages if stage.crashed_before)
    for why, names in grouped(crashed).items():
        yield Notice(f"{numbers.listing(names)} crashed once and continued with --resume: {why}")


def lacking(stages: Iterable[StageResult]) -> Iterator[str]:
    """A sentence on stages that passed without some checks, for each reason."""
    left_out = (
        (f"{_unjudged(whats)}: {note[0].lower()}{note[1:]}", stage.name)
        for stage in stages
        if stage.status == "passed"
        for note, whats in grouped(
            (check.note, check.what) for check in stage.checks if not check.judged and not check.is_not_made
        ).items()
    )
    for why, names in grouped(left_out).items():
        yield f"{numbers.brief([*dict.fromkeys(names)], MOST_NAMED)} passed, but {why}."


def _unjudged(whats: Sequence[str]) -> str:
    """The end of a sentence on checks that were not judged, for one reason: what nobody could see."""
    if whats[0].startswith("judged run, shorter"):
        return "nothing could show whether the judged run was too short"
    names = numbers.listing(f'"{what.removesuffix(" by")}"' for what in whats)
    return f"without the check{'s' * (len(whats) > 1)} {names}"


def not_made_in_words(results: Results) -> Iterable[str]:
    """A sentence on the checks that no stage had, for each reason; then on stages that lack as many of their own."""
    for note, checks in grouped((note, what) for what, note in sorted(lacked_by_all(results))).items():
        were = "was" if len(checks) == 1 else "were"
        yield f"{numbers.count(len(checks), 'check')} {were} made of no stage: {note}."
    if undecided := sorted(undecided_for_all(results)):
        whats = numbers.listing(f'"{what}"' for what in undecided)
        yield f"Rounding decides {whats}, or a part of it, for every stage."
    cut = (
        (f"{passed_in_words(stage, results)}: {lacking[0].note}.", stage.name)
        for stage in results.stages
        if (lacking := not_made(stage, results))
    )
    for text, names in grouped(cut).items():
        yield f"{numbers.listing(names)} {text}"


def _retry_notices(results: Results) -> Iterable[Notice]:
    """The processes that failed and were repeated: their rows look like any others."""
    retried = ((why, stage.name) for stage in results.stages for why in stage.retries)
    for why, names in grouped(retried).items():
        were = "was" if len(names) == 1 else "were"
        yield Notice(f"{numbers.listing(names)} {were} repeated in a newly started process. {why[0].upper()}{why[1:]}.")


def _profile_notices(results: Results) -> Iterable[Notice]:
    """The profiles and limits that are missing, one notice a tool and reason."""
    for tool in results.settings.profile:
        named = ((stage.unprofiled[tool], stage.name) for stage in results.stages if tool in stage.unprofiled)
        for why, names in grouped(named).items():
            yield Notice(f"{numbers.listing(names)} not profiled with {tool}: {why}")
    on_gpu = any(stage.device == "gpu" for stage in results.stages)
    if results.limits is None and results.settings.at_once == 1 and on_gpu:
        yield Notice("The GPU's limits were not measured, so there are no floors or cheat limits. See logs/limits.log.")
    if results.limits is not None and SHARED in results.limits.skipped.values():
        yield Notice(f"Some of the GPU's limits were not measured, so there are no floors or cheat limits: {SHARED}.")


def _timed(results: Results) -> list[tuple[StageResult, Timing]]:
    return [(stage, stage.timing) for stage in results.stages if stage.status == "passed" and stage.timing]


def _shortened_notices(results: Results) -> Iterable[Notice]:
    settings, timed = results.settings, _timed(results)
    asked = numbers.count(settings.rounds * settings.repeats, "run")
    shortened = grouped((measured_runs(timing), stage.name) for stage, timing in timed if timing.shortened)
    if shortened:
        told = "; ".join(f"{numbers.listing(names)} over {runs}" for runs, names in shortened.items())
        yield Notice(
            f"To stay within {numbers.duration(settings.budget_s)} a stage (--budget), some were not measured over "
            f"{asked} of {numbers.count(results.problem.epochs, 'epoch')}: {told}."
        )


def _left_out_notices(results: Results) -> Iterable[Notice]:
    """The stages that were not worth a process in every round."""
    settings = results.settings
    if settings.budget_total_s is None:
        return
    why_of = settled(results.stages) | dict.fromkeys(far_behind(results.stages), FAR_BEHIND_IN_WORDS)
    few = [each.name for each in results.stages if each.name in why_of and len(each.processes) < settings.rounds]
    for why, names in grouped((why_of[name], name) for name in few).items():
        yield Notice(f"{numbers.listing(names)} ran in fewer than {numbers.count(settings.rounds, 'round')}: {why}.")


def _timing_notices(results: Results) -> Iterable[Notice]:
    settings, timed = results.settings, _timed(results)
    if settings.at_once > 1:
        yield Notice(f"Up to {settings.at_once} stages ran side by side (--at-once): they were checked, but not timed.")
    for stage, timing in timed:
        if timing.throttled:
            states = [state for process in stage.processes for state in process.gpu_states]
            reasons = sorted({why for state in states for why in state.throttle_reasons or ()})
            because = f" ({', '.join(reasons)})" if reasons else ""
            yield Notice(f"{stage.name}: the GPU slowed itself down{because} during its timed runs.")
        if stage.expected and stage.expected.remark:
            yield Notice(f"{stage.name}: {stage.expected.remark}, by a model of recorded runs (docs/method.md).")
    yield from _disturbance_notices([stage for stage, _ in timed])
    yield from _precision_notices(results, [stage for stage, _ in timed])
    for stage, _ in timed:
        details = Counter(process.detail for process in stage.processes if process.detail)
        if len(details) > 1:
            counted = [f"{detail} ({count})" for detail, count in details.items()]
            yield Notice(f"The processes of {stage.name} differ: {'; '.join(counted)}.")
    gaps = {stage.name: gap for stage, _ in timed if (gap := disagreement(stage)) > DISAGREEMENT}
    if gaps:
        each = [f"{name} ({gaps[name]:.0%})" for name in sorted(gaps, key=lambda name: -round(gaps[name], 2))]
        named = numbers.brief(each, NAMED_STAGES)
        yield Notice(f"Times differ between the processes of {named}; ranges and verdicts allow for it.")


def _disturbance_notices(stages: Sequence[StageResult]) -> Iterable[Notice]:
    """The processes that other work or falling clocks disturbed: those measured again, then those that were kept."""
    for kept in (False, True):
        processes = {stage.name: stage.processes if kept else stage.set_aside for stage in stages}
        told = {name: [disturbance(one) for one in ones if one.disturbed] for name, ones in processes.items()}
        named = [f"{len(reasons)} of {name}" for name, reasons in told.items() if reasons]
        if named:
            reasons = [*chain.from_iterable(told.values())]
            few = len(named) <= NAMED_STAGES
            whose = numbers.listing(named) if few else f"{len(named)} of {len(stages)} timed stages"
            of_all = f"of the {sum(map(len, processes.values()))} processes that count"
            many = f"{len(reasons)} {of_all if kept else 'process' + 'es' * (len(reasons) > 1)}"
            were, again = "was" if len(reasons) == 1 else "were", ", set aside and measured again" * (not kept)
            yield Notice(f"{many} ({whose}) {were} disturbed{again}: {worst(reasons)}.")


def worst(reasons: Sequence[str]) -> str:
    """Reasons of one kind as the worst of them, with their number: `other processes kept up to 38% of ... (9)`."""
    kinds = grouped((re.sub(r"[\d.]+", "", reason), reason) for reason in reasons)
    told = []
    for ones in sorted(kinds.values(), key=len, reverse=True):
        worst = max(ones, key=lambda one: int(found[1]) if (found := SHARE.search(one)) else 0)
        most = SHARE.sub(lambda found: f"up to {found[1]}%" if found[1] != "0" else "under 1%", worst, count=1)
        told.append(f"{worst if len(ones) == 1 else most}{f' ({len(ones)})' * (len(kinds) > 1)}")
    return "; ".join(told)


def disturbance(process: Process) -> str:
    """The first reason why a process is disturbed; older ones are a share of another time than the limit is."""
    states = process.host_states[-len(process.runs_s) :]
    if process.disturbed[0].startswith(OLD_WAIT) and (covered_s := sum(state.over_s for state in states)):
        return f"{NEW_WAIT} {lost_in_words(sum(state.waited_s for state in states), covered_s)}"
    return process.disturbed[0]


def _precision_notices(results: Results, stages: Iterable[StageResult]) -> Iterable[Notice]:
    """The stages whose interval is still wider than `--precision` asked for."""
    wanted = results.settings.precision
    times_of = {stage.name: times for stage in stages if (times := step_times_us(stage))}
    reached = {name: median_interval(times).half_width for name, times in times_of.items()}
    wide = [name for name, share in reached.items() if wanted is not None and share > wanted]
    if wide:
        yield Notice(
            f"{numbers.listing(wide)}: not known to {numbers.share(wanted)} (--precision) when the time was up "
            "(--time-cap)."
        )
