"""A row while it is being measured: what the processes of one stage have brought so far."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping

import msgspec

from common.trainer import EpochMetrics
from ladder.machine.disturbance import with_disturbances
from ladder.measure.protocol import PROFILING, JobResult
from ladder.measure.timing import Plan
from ladder.profile.merge import averaged
from ladder.records.limits import Floor
from ladder.records.profile import Profile, Tool
from ladder.records.run import Check, Curve, LossPoint, Metrics, Process, StageDoc, StageResult, Status, Timing
from ladder.records.statistics import Interval, median_interval
from ladder.run.sources import code_of
from ladder.verify.gates import TIMER, verify_speed, worst_of
from stages.registry import Entry


class StageRun:
    """One stage's row; begins empty, or where an earlier run stopped."""

    def __init__(self, entry: Entry, steps_per_epoch: int, known: StageResult | None = None) -> None:
        self.entry = entry
        self.status: Status | None = None
        self.reason: str | None = None
        self.plan: Plan | None = None
        self.processes: list[Process] = []
        self.set_aside: list[Process] = []
        self._code = code_of(entry.source)
        self._steps = steps_per_epoch
        self._report = JobResult()
        self._checks: list[Check] = []
        self._metrics: Metrics | None = None
        self._profiles: dict[Tool, Profile] = {}
        self._unprofiled: dict[Tool, str] = {}
        self._floor: Floor | None = None
        self._shortened = False
        self._curve: Curve | None = None
        self._no_curve = ""
        self._before: tuple[list[Check], Status | None, str | None] = ([], None, None)  # the latest process
        # Whatever became of the row: a second time there would be nothing left to compile.
        self.compiled_s = known.compiled_s if known is not None else None
        self._crashed_before = ""
        if known is not None:
            self._crashed_before = (known.reason or "") if known.status == "crashed" else known.crashed_before
            if known.status != "skipped" and known.processes:
                self._take_up(known)

    def _take_up(self, known: StageResult) -> None:
        """Go on from there: what failed a check has failed for good, and what crashed lacks the rounds since alone."""
        first, timing = known.processes[0], known.timing
        epochs = timing.epochs if timing is not None else first.epochs
        if known.status == "crashed" and epochs is None:
            return  # as it was measured by an older version, which does not say how long each run was
        self.status = "failed" if known.status == "failed" else "passed"
        self.reason = known.reason if self.status == "failed" else None
        if epochs is not None:
            self.plan = Plan(epochs, len(first.runs_s), len(first.warmups_s))
        self._shortened = timing is not None and timing.shortened
        self.processes = list(known.processes)
        self.set_aside = list(known.set_aside)
        self._report = JobResult(detail=known.detail, device=known.device)
        self._checks = list(known.checks)
        self._metrics = known.metrics
        self._profiles = {profile.tool: profile for profile in known.profiles}
        self._unprofiled = dict(known.unprofiled)
        self._floor = known.floor
        self._curve, self._no_curve = known.curve, known.no_curve

    def wants(self, round_: int) -> bool:
        """Whether this round is still to be measured."""
        return self.status in (None, "passed") and all(process.round != round_ for process in self.processes)

    @property
    def wants_compiling(self) -> bool:
        """Whether it compiles for long, and nothing has been compiled for it yet."""
        stage = self.entry.stage
        compiles = stage.compiles_within is not None or stage.first_updates_within is not None
        return compiles and self.compiled_s is None and self.status is None and not self.processes

    def disturbed_rounds(self, most: int) -> list[int]:
        """The rounds that something else took part in, and that were not yet measured again so often."""
        seen = [process.round for process in self.set_aside]
        found = (process.round for process in self.processes if process.disturbed)
        return [round_ for round_ in found if self.status == "passed" and seen.count(round_) < most]

    def in_doubt(self, round_: int, most: int) -> bool:
        """Whether it failed in this round by the timer alone, while something else took part, which may be the reason.

        Not where it was measured again so often already: who works outside of the timer does so every time.
        """
        failed = [one.what for one in self._checks if not one.passed]
        disturbed = any(process.round == round_ and process.disturbed for process in self.processes)
        often = [process.round for process in self.set_aside].count(round_)
        return self.status == "failed" and failed == [TIMER] and disturbed and often < most

    def put_aside(self, round_: int) -> list[str]:
        """Take a round's process, where it has been measured, out of the times; returns what disturbed it."""
        if self.status == "failed":  # in doubt
            self._checks, self.status, self.reason = self._before
        found = [process for process in self.processes if process.round == round_]
        self.processes = [process for process in self.processes if process.round != round_]
        self.set_aside += found
        return [why for process in found for why in process.disturbed]

    def interval(self) -> Interval | None:
        """The median of its processes' times, and between what it lies; None for a stage that has not passed."""
        if self.status != "passed" or not self.processes:
            return None
        return median_interval([statistics.median(process.runs_s) for process in self.processes])

    def judge_speed(self, floor: Floor | None) -> None:
        """Compare its time with what the GPU can do at best: below what the problem takes, it cannot be true."""
        self._floor = floor
        timing = self._timing()
        if floor is not None and timing is not None:
            self._judge([verify_speed(floor.physical_us, timing.step_us)])

    @property
    def profile(self) -> Profile | None:
        """What CUPTI saw, or else nsys."""
        return self._profiles.get("cupti") or self._profiles.get("nsys")

    @property
    def profile_s(self) -> float:
        """What being profiled has taken a process of this stage so far, at most."""
        return max((process.took_s.get(PROFILING, 0.0) for process in self.processes), default=0.0)

    def wants_watching(self, tool: Tool) -> bool:
        """Whether a profiler from outside has still to see it: all that ran on the GPU, once they are measured."""
        return self.status == "passed" and self._report.device == "gpu" and tool not in self._profiles

    def watched(self, profile: Profile) -> None:
        """Take in what a profiler saw."""
        self._profiles[profile.tool] = profile
        self._unprofiled.pop(profile.tool, None)

    def not_watched(self, tool: Tool, reason: str) -> None:
        """Say why it did not; the row stays what it is."""
        self._unprofiled[tool] = reason

    def skip(self, reason: str) -> None:
        """It cannot run here."""
        self.status, self.reason = "skipped", reason

    def crash(self, reason: str) -> None:
        """Its process did not come to a good end; what earlier rounds measured is kept, but is no result."""
        self.status, self.reason = "crashed", reason

    def add(self, report: JobResult, checks: list[Check], accuracy: float, *, shortened: bool) -> None:
        """Take in what one process measured and how it was judged."""
        assert report.plan is not None
        assert report.process is not None
        self._before = self._checks, self.status, self.reason
        self._report = report
        self.plan = report.plan
        self._shortened = shortened
        seen, process = report.profile, report.process
        if seen is not None:
            process = msgspec.structs.replace(process, seen=seen.seen, split=seen.split)
        everyone = sorted([*self.processes, process], key=lambda one: one.round)
        self.processes = with_disturbances(everyone, self.set_aside, on_gpu=report.device == "gpu")
        if seen is not None:
            self.watched(averaged(self._profiles.get("cupti", seen), self.processes))
        elif report.unprofiled and "cupti" not in self._profiles:
            self._unprofiled["cupti"] = report.unprofiled
        if report.curve is not None or report.no_curve:
            self._curve, self._no_curve = report.curve, report.no_curve
        curve = _points(report.metrics)
        self._metrics = Metrics(
            _finite(accuracy), curve[-1].loss if curve else None, curve, _points(report.validations)
        )
        self._judge(checks)

    def _judge(self, checks: list[Check]) -> None:
        """Take in checks; the row has passed as long as all of them have."""
        self._checks = worst_of([*self._checks, *checks])
        failed = [one for one in self._checks if not one.passed]
        if failed:
            worst = failed[0]
            size = "not a number" if worst.error is None else f"{worst.error:.1e}"
            more = f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
            self.status, self.reason = "failed", f"{worst.what}: error {size}, limit {worst.limit:.1e}{more}"
        else:
            self.status = "passed"

    def summary(self) -> str:
        """One line for whoever watches."""
        timing = self._timing()
        if self.status == "passed" and timing is None:
            return "not timed"
        return f"{timing.epoch_s.median * 1e3:.3g} ms/epoch" if timing is not None else self.reason or ""

    @property
    def step_us(self) -> float:
        """What a step takes; the row has passed."""
        timing = self._timing()
        assert timing is not None
        return timing.step_us

    def _timing(self) -> Timing | None:
        """None for what has not passed, and for what was measured beside others, which would be anybody's time."""
        if self.status != "passed" or self.plan is None or any(process.beside for process in self.processes):
            return None
        return Timing.of(
            self.processes,
            epochs=self.plan.epochs,
            steps_per_epoch=self._steps,
            shortened=self._shortened,
            compiled_s=self.compiled_s,
        )

    def result(self) -> StageResult:
        """The row as the results file keeps it; a stage that has not begun says so."""
        stage, doc = self.entry.stage, self.entry.doc
        return StageResult(
            name=stage.name,
            title=stage.title,
            group=stage.group,
            below=stage.below,
            changed=stage.changed,
            precision=stage.precision,
            status=self.status or "skipped",
            reason=self.reason if self.status else "not measured yet; go on with --resume",
            device=self._report.device,
            detail=self._report.detail,
            doc=StageDoc(doc.why, doc.change, doc.expect, doc.found),
            code=self._code,
            timing=self._timing(),
            checks=self._checks,
            metrics=self._metrics,
            profiles=list(self._profiles.values()),
            unprofiled=self._unprofiled,
            floor=self._floor,
            processes=self.processes,
            set_aside=self.set_aside,
            curve=self._curve,
            no_curve=self._no_curve,
            crashed_before=self._crashed_before,
            compiled_s=self.compiled_s,
        )


def _points(seen: Mapping[int, EpochMetrics]) -> list[LossPoint]:
    return [LossPoint(e + 1, _finite(m.mean_loss), _finite(m.accuracy)) for e, m in sorted(seen.items())]


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
