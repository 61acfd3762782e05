"""Whether a stage became faster or slower between two runs, or whether nobody can tell.

A verdict is drawn from the interval of the ratio of the two medians (`ladder.records.statistics`), never from the ratio
alone. FASTER and SLOWER: the whole interval is on one side of 1, and the ratio further from it than two recordings of
the same thing may differ by. SAME: otherwise, and all of it is within the threshold, so that there is no difference
that anybody has to care about. Anything else is AMBIGUOUS.

On the CPU the host may have been faster beside one run than beside the other (`ladder.machine.cpu_speed`); there
the interval reaches from that of the times to where it were if the hosts' median paces explained what they may: a
verdict has to hold for both. Medians, since a process beside busy cores may find their pace many times slower.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from ladder.records.run import Results, StageResult
from ladder.records.statistics import BOOTSTRAP_PROCESSES, Interval, ratio_interval
from reports.compare.differences import cannot_compare, differences
from reports.facts.baselines import step_times_us
from reports.facts.summary import reason, table_order

Verdict = Literal["FASTER", "SLOWER", "SAME", "AMBIGUOUS"]
RESOLUTION = 0.005  # less than that, two recordings of one machine may differ by, whatever their processes say
THRESHOLD = 0.02
NO_REGRESSION, REGRESSION, CANNOT_COMPARE = 0, 1, 2


class Side(NamedTuple):
    """A stage's processes in one run."""

    times: list[float]  # a step of each in us
    paces_s: list[float]  # of the host's cores, beside each: see `ladder.machine.cpu_speed`; or empty


class StageVerdict(msgspec.Struct, frozen=True):
    """One stage in two runs; without a verdict where it has no times in one of them, which a remark explains."""

    name: str
    verdict: Verdict | None = None
    ratio: float | None = None  # of its times, new by base: above 1 is slower
    low: float | None = None  # the ends of the ratio's interval
    high: float | None = None
    base_us: float | None = None  # a step, the median of the processes' medians
    new_us: float | None = None
    base_processes: int = 0
    new_processes: int = 0
    regression: bool = False  # slower by more than the threshold, or passed no more
    lost: Literal["", "skipped", "absent"] = ""  # how it comes that only the base has times, and nobody broke it
    remarks: list[str] = []


class Comparison(msgspec.Struct, frozen=True):
    """Two runs, stage by stage."""

    base: str  # as the user named them
    new: str
    threshold: float
    exit_code: int  # 0: no regression, 1: a regression, 2: it cannot be told; see `compare`
    warnings: list[str]
    stages: list[StageVerdict]

    def named(self, verdict: Verdict) -> list[str]:
        """The stages with this verdict."""
        return [stage.name for stage in self.stages if stage.verdict == verdict]

    @property
    def regressions(self) -> list[str]:
        """The stages that became worse."""
        return [stage.name for stage in self.stages if stage.regression]

    @property
    def lost(self) -> list[str]:
        """The stages of the base that were not measured again."""
        return [stage.name for stage in self.stages if stage.lost]

    @property
    def undecided(self) -> list[str]:
        """The stages whose interval holds no difference as well as one beyond the threshold."""
        return _undecided(self.stages, self.threshold)


class CannotCompareError(Exception):
    """Two runs that no ratio can be made of: one line with what is in the way."""


def compare(
    base: Results, new: Results, names: tuple[str, str], *, threshold: float = THRESHOLD, strict: bool = False
) -> Comparison:
    """The verdicts on all stages of both runs; raises CannotCompareError.

    The exit code is 1 for a regression. Otherwise it is 2 where a stage of the base was skipped in the new run, since a
    machine that lost its GPU must pass no gate; and, with `strict`, where a stage of the base is absent, which may be
    what the user asked for, or where an interval holds no difference as well as a regression.
    """
    if obstacle := cannot_compare(base, new):
        raise CannotCompareError(f"{names[0]} and {names[1]}: {obstacle}")
    known = {stage.name: stage for stage in table_order(new)}
    was = {stage.name: stage for stage in table_order(base)}
    pairs = [(was.get(name), known.get(name), name) for name in dict.fromkeys([*was, *known])]
    alike = same_cpu(base, new)
    verdicts = [_stage(before, after, name, threshold, same_cpu=alike) for before, after, name in pairs]
    if not any(one.verdict or one.regression for one in verdicts):
        raise CannotCompareError(f"{names[0]} and {names[1]}: no stage was timed in both; name runs that share one")
    lost = {one.lost for one in verdicts}
    code = NO_REGRESSION
    if any(one.regression for one in verdicts):
        code = REGRESSION
    elif "skipped" in lost or (strict and ("absent" in lost or _undecided(verdicts, threshold))):
        code = CANNOT_COMPARE
    return Comparison(*names, threshold, code, differences(base, new), verdicts)


def _undecided(stages: list[StageVerdict], threshold: float) -> list[str]:
    return [one.name for one in stages if one.verdict == "AMBIGUOUS" and one.high and one.high > 1 + threshold]


def verdict_of(interval: Interval, threshold: float = THRESHOLD) -> Verdict:
    """What the interval of a ratio of times says."""
    if interval.low > 1 and interval.value > 1 + RESOLUTION:
        return "SLOWER"
    if interval.high < 1 and interval.value < 1 / (1 + RESOLUTION):
        return "FASTER"
    within = interval.low >= 1 / (1 + threshold) and interval.high <= 1 + threshold
    return "SAME" if within else "AMBIGUOUS"


def same_cpu(base: Results, new: Results) -> bool:
    """Whether their hosts may be expected to be as fast; of another CPU the pace is part of the answer."""
    return base.environment.get("cpu") == new.environment.get("cpu")


def side_of(stage: StageResult | None, *, with_paces: bool = True) -> Side:
    """Its processes; without times where it has none to compare, and without paces unless all have one."""
    times, processes = step_times_us(stage), stage.processes if stage and with_paces else []
    paces_s = [process.pace_s for process in processes if process.pace_s is not None and process.runs_s]
    return Side(times, paces_s if len(paces_s) == len(times) else [])


def interval_between(base: Side, new: Side) -> Interval:
    """That of the ratio of their times; where the host's paces are known, and as far beyond as their medians differ."""
    interval = ratio_interval(base.times, new.times)
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
    by_times = ratio_interval(base, new)
    sides = [side_of(stage, with_paces=same_cpu) for stage in (before, after)]
    interval = interval_between(*sides)
    unheld = ["the host's pace is known in one of the runs only"] * (len({bool(side.paces_s) for side in sides}) > 1)
    verdict, alone = verdict_of(interval, threshold), verdict_of(by_times, threshold)
    may_be_host = [f"{alone} by its times alone, for which the host's pace may be the reason"] * (verdict != alone)
    return replace(
        known,
        remarks=[*known.remarks, *unheld, *may_be_host],
        verdict=verdict,
        ratio=interval.value,
        low=interval.low,
        high=interval.high,
        regression=verdict == "SLOWER" and interval.value > 1 + threshold,
    )


def _remarks(before: StageResult, after: StageResult, base: int, new: int) -> Iterator[str]:
    """What a reader must know about a stage's verdict, or about why it has none."""
    if before.code and after.code and before.code.scheme == after.code.scheme and before.code != after.code:
        pairs = {
            "sources": (before.code.sources, after.code.sources),
            "kernels": (before.code.kernels, after.code.kernels),
        }
        yield f"its {' and '.join(what for what, (then, now) in pairs.items() if then != now)} differ"
    for stage, times, which in ((before, base, "first"), (after, new, "new")):
        if not times:
            yield f"{stage.status} in the {which} run" + (
                ", which has not the times of its processes" if stage.status == "passed" else f" ({reason(stage)})"
            )
    if not base or not new:
        return
    if min(base, new) < BOOTSTRAP_PROCESSES:
        yield f"fewer than {BOOTSTRAP_PROCESSES} processes in a run tell large differences only"
    if before.timing and after.timing and before.timing.epochs != after.timing.epochs:
        yield f"runs of {before.timing.epochs} and {after.timing.epochs} epochs"
    if before.precision != after.precision:
        yield f"its precision was {before.precision}, is {after.precision}"
    if before.device != after.device:
        yield f"it ran on the {before.device}, runs on the {after.device}"
    if disturbed := sum(bool(process.disturbed) for stage in (before, after) for process in stage.processes):
        yield f"{disturbed} of {base + new} processes were disturbed"
