"""One stage during a run: collects the results of its processes, and becomes its entry in `results.json`."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from common.trainer import EpochMetrics
from ladder.machine.disturbance import least_disturbed, with_disturbances
from ladder.measure.protocol import PROFILING, JobResult
from ladder.measure.timing import Plan
from ladder.profile.summary import averaged
from ladder.records.expectation import Expected
from ladder.records.limits_record import StepBounds
from ladder.records.profile import Profile, Tool
from ladder.records.run import (
    Check,
    LossPoint,
    Metrics,
    PartRecord,
    Process,
    StageCode,
    StageDoc,
    StageResult,
    Status,
    Timing,
    preferred,
)
from ladder.records.source_walk import Project
from ladder.records.statistics import Interval, median_interval
from ladder.run.code_watch import CodeWatch
from ladder.verify.failed_checks import first_cause, is_of_first_update, what_to_look_at
from ladder.verify.gates import TIMER_CHECK, verify_speed, worst_of
from ladder.verify.other_runs import CLOCK_CHECK, JUDGED_CHECK
from stages.engine.stage import GPU
from stages.registry import Entry

BUSY = "other work kept this machine busy, so that times say nothing; measure again on a quiet one"
SAID = ("name", "title", "group", "below", "changed", "precision", "words", "regime", "takes_gpus")
"""What a stage says of itself, in the words of its record."""
TIME_CHECKS = {TIMER_CHECK, CLOCK_CHECK, JUDGED_CHECK}  # that a disturbed process may fail


class StageRun:
    """The state of one stage in a run; starts empty, or from the stage's entry in a resumed run."""

    def __init__(
        self,
        entry: Entry,
        steps_per_epoch: int,
        known: StageResult | None = None,
        expected: Expected | None = None,
        project: Project | None = None,
    ) -> None:
        """Stages that share a `project` share what they read of their code; without one it is not hashed."""
        self.entry = entry
        self.expected = expected
        self.choices: dict[str, int] = {}  # by timing, of its processes
        self.printed = ""  # by its latest process, first: a library may say what is wrong
        self._attempts: list[Process] = []  # that passed their checks, in this run of the program
        self._watch = CodeWatch(entry.source, project) if project is not None else None
        self._steps = steps_per_epoch
        # Checks, status and reason before the latest process was added.
        self._before_latest: tuple[list[Check], Status | None, str | None] = ([], None, None)
        # Kept whatever the status: compiling again would find everything in the cache.
        self.compiled_s = known.compiled_s if known is not None else None
        # A run that goes on may have come to another machine, whose cache is empty.
        self.may_compile = known is None or known.compiled_s is None or bool(known.processes)
        self._described = _described(entry, self.code)
        self.retries = list(known.retries) if known is not None else []
        self._crashed_before = ""
        if known is not None:
            self._crashed_before = (known.reason or "") if known.status == "crashed" else known.crashed_before
        self._go_on_from(known if known is not None and _can_go_on(known) else self._described)

    def _go_on_from(self, known: StageResult) -> None:
        """Continue from an earlier run: a failed stage stays failed, a crashed one repeats only the missing rounds."""
        has_begun, timing = bool(known.processes), known.timing
        self.status: Status | None = None
        if has_begun:
            self.status = "failed" if known.status == "failed" else "passed"
        self.reason = known.reason if self.status == "failed" else None
        self.plan: Plan | None = None
        if has_begun and (epochs := _epochs(known)) is not None:
            self.plan = Plan(epochs, len(known.processes[0].runs_s), len(known.processes[0].warmups_s))
        self._shortened = timing is not None and timing.shortened
        self.processes, self.set_aside = list(known.processes), list(known.set_aside)
        self._latest = JobResult(detail=known.detail, device=known.device)
        self._checks, self._metrics, self._bounds = list(known.checks), known.metrics, known.bounds
        self._profiles = {profile.tool: profile for profile in known.profiles}
        self._unprofiled = dict(known.unprofiled)
        self._curve, self._no_curve = known.curve, known.no_curve

    @property
    def name(self) -> str:
        """The stage's id."""
        return self.entry.stage.name

    @property
    def own(self) -> str:
        """Its id if it is a stage of the user's, whose judged runs no other stage has; else empty."""
        return "" if self.entry.is_ours else self.name

    def needs_round(self, round_: int) -> bool:
        """Whether this round still has to be measured."""
        return self.status in (None, "passed") and all(process.round != round_ for process in self.processes)

    @property
    def code(self) -> StageCode | None:
        """The hashes of its code."""
        return self._watch.code if self._watch is not None else None

    @property
    def needs_compiling(self) -> bool:
        """Whether the stage takes long to compile, and neither was compiled nor measured in this run of the program."""
        return self.entry.stage.keeps_compiled_code and self.may_compile and self.status in (None, "passed")

    def rounds_to_repeat(self, limit: int) -> list[int]:
        """The rounds whose process was disturbed, if repeated fewer than `limit` times so far."""
        repeated = [process.round for process in self.set_aside]
        disturbed = (process.round for process in self.processes if process.disturbed)
        return [round_ for round_ in disturbed if self.status == "passed" and repeated.count(round_) < limit]

    @property
    def is_disturbed_throughout(self) -> bool:
        """Whether every process that it has was disturbed; a stage without any was."""
        return all(process.disturbed for process in self.processes)

    def should_repeat_timer_failure(self, round_: int, limit: int) -> bool:
        """Whether the stage failed only checks of times, for the first time or in a disturbed process of this round.

        Other work may be the cause, seen or not, so one repetition is granted even where `limit` is 0. After `limit`
        repetitions the failure counts: a stage that works outside of the timer does so every time.
        """
        disturbed = any(process.round == round_ and process.disturbed for process in self.processes)
        repeated = [process.round for process in self.set_aside].count(round_)
        return self._failed_times_alone and (disturbed or not repeated) and repeated < max(1, limit)

    @property
    def _failed_times_alone(self) -> bool:
        failed = {check.what for check in self._checks if not check.passed}
        return self.status == "failed" and bool(failed) and failed <= TIME_CHECKS  # some fail without any check

    def set_round_aside(self, round_: int) -> None:
        """Exclude a round's process from the times, if it was measured."""
        if self.status == "failed":  # by the timer check of this process, whose verdict is withdrawn
            self._checks, self.status, self.reason = self._before_latest
        removed = [process for process in self.processes if process.round == round_]
        self.processes = [process for process in self.processes if process.round != round_]
        self.set_aside += removed

    def interval(self) -> Interval | None:
        """The median of its processes' times with its confidence interval; None unless the stage has passed."""
        if self.status != "passed" or not self.processes:
            return None
        return median_interval([statistics.median(process.runs_s) for process in self.processes])

    def check_speed(self, bounds: StepBounds | None) -> None:
        """Record the bounds, and fail the stage if its time lies below the problem's cheat limit."""
        self._bounds = bounds
        if bounds is not None:
            self.check_time(bounds.cheat_limit_us)

    def check_time(self, cheat_limit_us: float) -> None:
        """Fail the stage if its time of a step lies below this limit."""
        if (timing := self._timing()) is not None:
            self._add_checks([verify_speed(cheat_limit_us, timing.step_us)])

    @property
    def profile(self) -> Profile | None:
        """The profile to show; None without any."""
        return preferred(self._profiles.values())

    @property
    def is_on_cpu(self) -> bool:
        """Whether it is a rung on the CPU."""
        return self.entry.stage.place is not GPU

    @property
    def device(self) -> Literal["cpu", "gpu"] | None:
        """The device of its latest process; None before."""
        return self._latest.device

    @property
    def detail(self) -> str:
        """What its latest process says of how it trained."""
        return self._latest.detail

    @property
    def tool(self) -> Tool:
        """The tool that profiles it in its own process."""
        return "stamps" if self.is_on_cpu else "cupti"

    @property
    def profile_s(self) -> float:
        """The longest time in seconds that profiling has taken in one of its processes."""
        return max((process.took_s.get(PROFILING, 0.0) for process in self.processes), default=0.0)

    def needs_profile(self, tool: Tool) -> bool:
        """Whether a separate process should profile the stage: it passed on the GPU and has no such profile yet."""
        return self.status == "passed" and self._latest.device == "gpu" and tool not in self._profiles

    def add_profile(self, profile: Profile) -> None:
        """Add or replace the profile of one tool."""
        self._profiles[profile.tool] = profile
        self._unprofiled.pop(profile.tool, None)

    def set_unprofiled(self, tool: Tool, reason: str) -> None:
        """Record why a tool produced no profile; the status does not change."""
        self._unprofiled[tool] = reason

    def skip(self, reason: str) -> None:
        """Record why the stage cannot run here."""
        self.status, self.reason = "skipped", reason

    def fail(self, reason: str) -> None:
        """Record why the stage gets no time although its processes ended well."""
        self.status, self.reason = "failed", reason

    def changed_code(self) -> list[str]:
        """The names of the files of its code that have changed since the run began."""
        return self._watch.changed() if self._watch is not None else []

    def crash(self, reason: str) -> None:
        """Record why a process crashed; the stage keeps its earlier processes but gets no time."""
        self.status, self.reason = "crashed", reason

    def add_process(
        self,
        result: JobResult,
        checks: list[Check],
        accuracy: float,
        *,
        shortened: bool,
        networks: Sequence[float] = (),
    ) -> None:
        """Add the result of one process and its checks; `accuracy` is on the test images, by the harness.

        Of several networks it is the mean, and `networks` has that of each.
        """
        assert result.plan is not None
        assert result.process is not None
        self._before_latest = self._checks, self.status, self.reason
        self._latest, self.may_compile = result, False
        self.plan = result.plan
        self._shortened = shortened
        seen, process = result.profile, result.process
        if seen is not None:
            process = msgspec.structs.replace(process, seen=seen.seen, split=seen.split)
        self._add_attempt(process, on_gpu=result.device == "gpu", passed=all(check.passed for check in checks))
        if seen is not None:
            self.add_profile(averaged(self._profiles.get(seen.tool, seen), self.processes))
        elif result.unprofiled and self.tool not in self._profiles:
            self._unprofiled[self.tool] = result.unprofiled
        if result.curve is not None or result.no_curve:
            self._curve, self._no_curve = result.curve, result.no_curve
        curve = _points(result.metrics)
        self._metrics = Metrics(
            _finite(accuracy),
            curve[-1].loss if curve else None,
            curve,
            _points(result.validations),
            list(map(_finite, networks)),
        )
        self._add_checks(checks)

    def add_untimed(self, result: JobResult, checks: list[Check]) -> None:
        """Add the checks of a process that timed nothing."""
        self._latest = result
        self._add_checks(checks)

    def _add_attempt(self, process: Process, *, on_gpu: bool, passed: bool) -> None:
        """Add a process. If every attempt at its round was disturbed, keep the one that was disturbed least.

        An attempt that failed a check is never kept instead of one that passed.
        """

        def judged(kept: Process) -> list[Process]:
            everyone = sorted([*others, kept], key=lambda process: process.round)
            return with_disturbances(everyone, self.set_aside, on_gpu=on_gpu)

        others = list(self.processes)
        self.processes = judged(process)
        if not passed:
            return
        self._attempts.append(process)
        (latest,) = (earlier for earlier in self.processes if earlier.round == process.round)
        if latest.disturbed:
            attempts = [earlier for earlier in self._attempts if earlier.round == process.round]
            kept = least_disturbed(attempts, [*others, *self.set_aside], on_gpu=on_gpu)
            # The same measurement has the same list of runs, whatever was judged of it since.
            self.set_aside = [latest if process.runs_s is kept.runs_s else process for process in self.set_aside]
            self.processes = judged(kept)

    def _add_checks(self, checks: list[Check]) -> None:
        """Add checks; the stage has passed if all of them have."""
        self._checks = worst_of([*self._checks, *checks])
        failed = [check for check in self._checks if not check.passed]
        if failed:
            cause = first_cause(self._checks)
            first = next(check for check in failed if not cause or is_of_first_update(check))
            size = "not a number" if first.error is None else f"{first.error:.1e}"
            more = f" (and {len(failed) - 1} more)" if len(failed) > 1 and not cause else ""
            advice = f"; {said}" if (said := cause or what_to_look_at(first, self._checks)) else ""
            self.status, self.reason = "failed", f"{first.what}: error {size}, limit {first.limit:.1e}{more}{advice}"
            self.reason += f"; it printed: {self.printed}" if self.printed else ""
            if self._failed_times_alone and self.is_latest_disturbed:
                self.reason = f"{BUSY}: {self.reason}"
        else:
            self.status = "passed"

    def summary(self) -> str:
        """Why there is no time yet, in one line; empty if there is one."""
        if self.step_us is not None:
            return ""
        return "not timed" if self.status == "passed" else self.reason or ""

    @property
    def step_us(self) -> float | None:
        """The time of a step in us; None unless the stage has passed and was timed."""
        timing = self._timing()
        return timing.step_us if timing is not None else None

    @property
    def latest_step_us(self) -> float | None:
        """The time of a step in us in the process added last, kept or not; None while the stage has no time."""
        process = self._latest.process
        if self.step_us is None or self.plan is None or process is None:
            return None
        return statistics.median(process.runs_s) / self.plan.epochs / self._steps * 1e6

    @property
    def is_latest_disturbed(self) -> bool:
        """Whether other work disturbed the process added last, kept or not."""
        latest = self._latest.process
        known = [*self.processes, *self.set_aside]
        return latest is not None and any(process.disturbed for process in known if process.runs_s is latest.runs_s)

    def _timing(self) -> Timing | None:
        """The stage's times; None unless it passed, and None if any process ran beside others."""
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
        """The stage's entry in the results file; a stage without any process is skipped for now."""
        return msgspec.structs.replace(
            self._described,
            status=self.status or "skipped",
            reason=self.reason if self.status else "not measured yet; continue with --resume",
            device=self._latest.device,
            detail=self._latest.detail,
            timing=self._timing(),
            checks=self._checks,
            metrics=self._metrics,
            profiles=list(self._profiles.values()),
            unprofiled=self._unprofiled,
            bounds=self._bounds,
            processes=self.processes,
            set_aside=self.set_aside,
            curve=self._curve,
            no_curve=self._no_curve,
            crashed_before=self._crashed_before,
            retries=self.retries,
            compiled_s=self.compiled_s,
            expected=self.expected,
        )


def _described(entry: Entry, code: StageCode | None) -> StageResult:
    """A stage's entry in the results file before anything is known of it but what it says of itself."""
    stage = entry.stage
    return StageResult(
        **{name: getattr(stage, name) for name in SAID},
        status="skipped",
        hides_copies=stage.recipe is not None and stage.recipe.data.hides_copies,
        recipe=[PartRecord(part.name, part.chosen, part.file, part.replaced) for part in stage.parts],
        doc=msgspec.convert(entry.doc, StageDoc, from_attributes=True),
        code=code,
    )


def _epochs(known: StageResult) -> int | None:
    """Epochs of each run; None where results of an older version do not tell."""
    return known.timing.epochs if known.timing is not None else known.processes[0].epochs


def _can_go_on(known: StageResult) -> bool:
    """Whether the processes of an earlier run count: not those of a crashed stage of an older version."""
    has_begun = known.status != "skipped" and bool(known.processes)
    return has_begun and not (known.status == "crashed" and _epochs(known) is None)


def _points(seen: Mapping[int, EpochMetrics]) -> list[LossPoint]:
    return [
        LossPoint(e + 1, _finite(m.mean_loss), _finite(m.accuracy), [_finite(n.accuracy) for n in m.networks])
        for e, m in sorted(seen.items())
    ]


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
