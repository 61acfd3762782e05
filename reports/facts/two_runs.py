"""Whether a stage became faster or slower between two runs.

A verdict comes from the interval of the ratio of the two medians (`ladder.records.statistics`), never from the ratio
alone. FASTER and SLOWER: the interval lies on one side of 1, and the ratio is further from 1 than two recordings of one
machine differ. SAME: otherwise, if the interval ends near 1; the verdict names the farther end, "SAME within 3.2%".
AMBIGUOUS: the interval is too wide to say so.

For stages on the CPU, the host may be faster during one run than during the other (`ladder.machine.cpu_speed`). The
interval is then widened by the difference in median CPU speed, so that a verdict holds with and without it. Medians are
used because a probe beside busy cores may be many times slower.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator
from typing import Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from ladder.records.run import Results, StageResult
from ladder.records.statistics import BOOTSTRAP_PROCESSES, CPU_SPREAD, VERDICT_CONFIDENCE, Interval, ratio_interval
from reports.facts import numbers
from reports.facts.launch_regimes import assumed_spread
from reports.facts.run_differences import cannot_compare, differences, is_same_run
from reports.facts.run_table import reason, table_order
from reports.facts.times import step_times_us
from reports.report_error import ReportError

Verdict = Literal["FASTER", "SLOWER", "SAME", "AMBIGUOUS"]
RESOLUTION = 0.005  # share; two recordings of one machine may differ by less, whatever their intervals say
THRESHOLD = 0.02  # share; a smaller regression is tolerated
SAME_WITHIN = 0.10  # share; an interval that reaches further from 1 shows nothing
ROUNDING = 1e-9  # an end such as 1.02 is no binary fraction
NO_REGRESSION, REGRESSION, CANNOT_COMPARE = 0, 1, 2


class Side(NamedTuple):
    """A stage's processes in one run."""

    times: list[float]  # microseconds per step of each process
    paces_s: list[float]  # the host's CPU speed probe beside each, see `ladder.machine.cpu_speed`; or empty
    spread: float = CPU_SPREAD  # of recorded processes of such stages


class StageVerdict(msgspec.Struct, frozen=True):
    """One stage in two runs; without times in one of them there is no verdict, and a remark says why."""

    name: str
    verdict: Verdict | None = None
    ratio: float | None = None  # new time by base time: above 1 is slower
    low: float | None = None  # ends of the ratio's interval
    high: float | None = None
    base_us: float | None = None  # a step: median of the processes' medians
    new_us: float | None = None
    base_processes: int = 0
    new_processes: int = 0
    regression: bool = False  # slower by more than the threshold, or no longer passing
    lost: Literal["", "skipped", "absent"] = ""  # why only the base has times, though the stage did not break
    remarks: list[str] = []

    @property
    def words(self) -> str:
        """The verdict, with the share within which a stage is the same; empty without one."""
        return in_words(self.verdict, self.low, self.high)


class Comparison(msgspec.Struct, frozen=True):
    """Two runs, stage by stage."""

    base: str  # as the user named them
    new: str
    threshold: float
    exit_code: int  # 0: no regression, 1: a regression, 2: undecided; see `compare`
    warnings: list[str]
    stages: list[StageVerdict]
    same_run: bool = False  # both names are of one run, so that there is nothing to judge

    @classmethod
    def of(
        cls,
        stages: list[StageVerdict],
        names: tuple[str, str],
        threshold: float,
        warnings: list[str],
        *,
        strict: bool,
        what: str = "stage",
    ) -> Comparison:
        """The comparison with its exit code; raises CannotCompareError if nothing was timed in both runs.

        The exit code is 1 for a regression. Otherwise it is 2 if the new run skipped a stage of the base: a machine
        that has lost its GPU must not pass the gate. With `strict` it is also 2 if a stage of the base is absent, or if
        an interval holds 1 as well as a regression.
        """
        if not any(stage.verdict or stage.regression for stage in stages):
            raise CannotCompareError(
                f"{names[0]} and {names[1]}: no {what} was timed in both; name runs that share one"
            )
        lost = {stage.lost for stage in stages}
        code = NO_REGRESSION
        if any(stage.regression for stage in stages):
            code = REGRESSION
        elif "skipped" in lost or (strict and ("absent" in lost or _undecided(stages, threshold))):
            code = CANNOT_COMPARE
        return cls(*names, threshold, code, warnings, stages)

    def named(self, verdict: Verdict) -> list[str]:
        """The stages with this verdict."""
        return [stage.name for stage in self.stages if stage.verdict == verdict]

    @property
    def undecided(self) -> list[str]:
        """The stages whose interval holds 1 as well as a regression."""
        return _undecided(self.stages, self.threshold)

    @property
    def regressions(self) -> list[str]:
        """The stages with a regression."""
        return [stage.name for stage in self.stages if stage.regression]

    @property
    def lost(self) -> list[str]:
        """The stages of the base that the new run did not measure."""
        return [stage.name for stage in self.stages if stage.lost]


class CannotCompareError(ReportError):
    """Two runs without a comparable stage: one line with the obstacle."""


def compare(
    base: Results, new: Results, names: tuple[str, str], *, threshold: float = THRESHOLD, strict: bool = False
) -> Comparison:
    """The verdicts on all stages of both runs, none on a run and itself; raises CannotCompareError."""
    if obstacle := cannot_compare(base, new):
        raise CannotCompareError(f"{names[0]} and {names[1]}: {obstacle}")
    if is_same_run(base, new):
        return Comparison(*names, threshold, NO_REGRESSION, [], [], same_run=True)
    known = {stage.name: stage for stage in table_order(new)}
    was = {stage.name: stage for stage in table_order(base)}
    pairs = [(was.get(name), known.get(name), name) for name in dict.fromkeys([*was, *known])]
    alike = same_cpu(base, new)
    verdicts = [_stage(before, after, name, threshold, same_cpu=alike) for before, after, name in pairs]
    return Comparison.of(verdicts, names, threshold, differences(base, new), strict=strict)


def how_to_read(comparison: Comparison) -> str:
    """The meaning of the table's columns and verdicts."""
    text = (
        f"new / base: the ratio of the times, above 1 is slower; interval: its {VERDICT_CONFIDENCE:.1%} interval over "
        "fresh processes. SLOWER, FASTER: the interval lies on one side of 1, and the ratio is more than "
        f"{RESOLUTION:.1%} from 1. SAME within x: otherwise, if the interval reaches no further than x from 1, "
        f"at most {numbers.share(max(comparison.threshold, SAME_WITHIN))}. AMBIGUOUS: neither."
    )
    if comparison.named("AMBIGUOUS") or comparison.undecided:
        text += f" To narrow an interval, record both runs with more --rounds (at least {BOOTSTRAP_PROCESSES})."
    return text


def _undecided(stages: list[StageVerdict], threshold: float) -> list[str]:
    judged = [stage for stage in stages if stage.verdict in ("SAME", "AMBIGUOUS")]
    return [stage.name for stage in judged if stage.high and stage.high > 1 + threshold]


def verdict_of(interval: Interval, threshold: float = THRESHOLD) -> Verdict:
    """The verdict that the interval of a ratio of times allows."""
    if interval.low > 1 and interval.value > 1 + RESOLUTION:
        return "SLOWER"
    if interval.high < 1 and interval.value < 1 / (1 + RESOLUTION):
        return "FASTER"
    return "SAME" if _reach(interval.low, interval.high) <= max(threshold, SAME_WITHIN) + ROUNDING else "AMBIGUOUS"


def in_words(verdict: Verdict | None, low: float | None, high: float | None) -> str:
    """A verdict with the share within which a stage is the same: `SAME within 3.2%`; empty without one."""
    if verdict != "SAME" or low is None or high is None:
        return verdict or ""
    return f"SAME within {max(math.ceil(_reach(low, high) * 1000 - ROUNDING), 1) / 10:.1f}%"


def _reach(low: float, high: float) -> float:
    """The farthest that an interval reaches from 1, as a share."""
    return max(high, 1 / low) - 1


def same_cpu(base: Results, new: Results) -> bool:
    """Whether both hosts have the same CPU; the speed of a different CPU is part of the result."""
    return base.environment.get("cpu") == new.environment.get("cpu")


def side_of(stage: StageResult | None, *, with_paces: bool = True) -> Side:
    """A stage's times in one run, empty unless it passed; its paces, empty unless every process has one."""
    times, processes = step_times_us(stage), stage.processes if stage and with_paces else []
    paces_s = [process.pace_s for process in processes if process.pace_s is not None and process.runs_s]
    spread = assumed_spread(stage) if stage is not None else CPU_SPREAD
    return Side(times, paces_s if len(paces_s) == len(times) else [], spread)


def paced_alike(*stages: StageResult | None) -> bool:
    """Whether all paces are of one core, or all of the cores together: only such can be compared."""
    paced = [process for stage in stages if stage for process in stage.processes if process.pace_s is not None]
    return len({process.pace_cores == 1 for process in paced}) < 2


def interval_between(base: Side, new: Side) -> Interval:
    """The interval of the ratio of their times, widened by the difference in CPU speed when known."""
    interval = ratio_interval(base.times, new.times, spread=max(base.spread, new.spread))
    if not base.paces_s or not new.paces_s:
        return interval
    host = statistics.median(new.paces_s) / statistics.median(base.paces_s)
    return Interval(interval.value, interval.low / max(host, 1.0), interval.high / min(host, 1.0))


def _stage(
    before: StageResult | None, after: StageResult | None, name: str, threshold: float, *, same_cpu: bool
) -> StageVerdict:
    if after is None:
        return StageVerdict(name, remarks=["only in the first run"], lost="absent" if step_times_us(before) else "")
    if before is None:
        return StageVerdict(name, remarks=["only in the new run"])
    base, new = step_times_us(before), step_times_us(after)
    known = StageVerdict(
        name,
        base_us=statistics.median(base) if base else None,
        new_us=statistics.median(new) if new else None,
        base_processes=len(base),
        new_processes=len(new),
        remarks=list(_remarks(before, after, len(base), len(new))),
    )
    if not base or not new:
        regression = bool(base) and after.status in ("failed", "crashed")
        return replace(known, regression=regression, lost="skipped" if base and after.status == "skipped" else "")
    interval, verdict, doubts = verdict_between(before, after, threshold, same_cpu=same_cpu)
    return judged(replace(known, remarks=[*known.remarks, *doubts]), interval, threshold, verdict)


def verdict_between(
    before: StageResult, after: StageResult, threshold: float = THRESHOLD, *, same_cpu: bool
) -> tuple[Interval, Verdict, list[str]]:
    """The interval of the ratio of a stage's times in two runs, the verdict, and remarks on it; both have times.

    However many runs are compared, any two of them have this verdict.
    """
    with_paces = same_cpu and paced_alike(before, after)
    sides = [side_of(stage, with_paces=with_paces) for stage in (before, after)]
    interval, by_times = interval_between(*sides), interval_between(*(side._replace(paces_s=[]) for side in sides))
    doubts = ["only one run recorded the host's CPU speed"] * (len({bool(side.paces_s) for side in sides}) > 1)
    verdict, alone = verdict_of(interval, threshold), verdict_of(by_times, threshold)
    doubts += [f"{alone} by its times alone, which the host's CPU speed may explain"] * (verdict != alone)
    throughout = any(all(process.disturbed for process in stage.processes) for stage in (before, after))
    if verdict in ("SLOWER", "FASTER") and throughout and min(len(side.times) for side in sides) < BOOTSTRAP_PROCESSES:
        doubts.append(f"{verdict} by its times, of which one run has disturbed ones alone")
        verdict = "AMBIGUOUS"
    return interval, verdict, doubts


def judged(known: StageVerdict, interval: Interval, threshold: float, verdict: Verdict | None = None) -> StageVerdict:
    """What is known of a stage with the interval of its ratio, and with this verdict or the interval's own."""
    verdict = verdict or verdict_of(interval, threshold)
    ratio, low, high = interval
    regression = verdict == "SLOWER" and ratio > 1 + threshold
    return replace(known, verdict=verdict, ratio=ratio, low=low, high=high, regression=regression)


def _remarks(before: StageResult, after: StageResult, base: int, new: int) -> Iterator[str]:
    """Remarks on a stage's verdict, or on why it has none."""
    if before.code and after.code and before.code.scheme == after.code.scheme and before.code != after.code:
        parts = [of for of in ("sources", "kernels", "timer") if getattr(before.code, of) != getattr(after.code, of)]
        yield f"its {numbers.listing(parts)} differ{'s' if parts == ['timer'] else ''}"
    runs = ((before, base, "the first run"), (after, new, "the new run"))
    untimed = {which: (stage.status, reason(stage)) for stage, times, which in runs if not times}
    if len(untimed) == 2 and len({*untimed.values()}) == 1:
        untimed = {"both runs": untimed["the new run"]}
    for which, (status, why) in untimed.items():
        yield f"{status} in {which}" + (", without the times of its processes" if status == "passed" else f" ({why})")
    if not base or not new:
        return
    if min(base, new) < BOOTSTRAP_PROCESSES:
        yield f"fewer than {BOOTSTRAP_PROCESSES} processes in a run; the interval assumes how far they scatter"
    if before.timing and after.timing and before.timing.epochs != after.timing.epochs:
        yield f"runs of {before.timing.epochs} and {after.timing.epochs} epochs"
    if before.precision != after.precision:
        yield f"its precision changed from {before.precision} to {after.precision}"
    if before.device != after.device:
        yield f"its device changed from {before.device} to {after.device}"
    if disturbed := sum(bool(process.disturbed) for stage in (before, after) for process in stage.processes):
        yield f"{disturbed} of {base + new} processes were disturbed"
