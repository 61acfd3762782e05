"""The scheduler of a run: one fresh process per stage and round, with the results saved after each process.

Rounds are interleaved (A B C, A B C, ...), so that a drift of clocks or temperature affects all stages alike. This
module prints nothing; an `Observer` receives the progress.
"""

from __future__ import annotations

import math
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Protocol

import msgspec

from common.blas import limit_blas_threads
from common.data.dataset import Dataset
from common.problem import Problem, initial_params
from ladder.machine.clock_lock import locked_clocks
from ladder.machine.environment import cores_usable, missing
from ladder.machine.limits import bounds_of
from ladder.measure.protocol import FIRST_UPDATE_RUN, TRACE, Job, JobResult, drawn, load_params, run_number
from ladder.measure.timing import Plan
from ladder.processes.compilers import Compilers
from ladder.processes.fork_servers import ForkServer, ForkServers
from ladder.processes.worker_pool import FinishedJob, WorkerPool
from ladder.processes.worker_process import measure_gpu_limits, run_job
from ladder.profile import nsys
from ladder.profile.bytes_moved import with_bytes
from ladder.profile.trace import ProfileError
from ladder.records.run import LossPoint, OracleRecord, Results, StageResult, save
from ladder.run.preflight import gpu_has_no_room
from ladder.run.stage_run import StageRun
from ladder.run.under_nsys import profile_under_nsys
from ladder.verify.gates import (
    FirstBatches,
    evaluate_final,
    verify_displacements,
    verify_final,
    verify_first_update,
    verify_from_zero,
    verify_timer,
    verify_validation,
)
from ladder.verify.oracle_runs import OracleRun, compute_all
from stages.engine.stage import Stage
from stages.registry import Entry

SCRATCH = "scratch-"
PROFILES = "profiles"  # subfolder for traces and nsys reports
ORACLE_BUDGET_S = 60.0
PROFILE_LIMIT_S = 3.0  # if CUPTI takes longer in a stage's process, later rounds are not profiled
MAX_ROUNDS = 450
# Rounds whose fork servers import before anything is measured; more of them would fill the memory.
ROUNDS_IMPORTED_AHEAD = 2
FIRST_BATCHES = (1, 3, 17)  # 17 exceeds the steps that any stage compiles or unrolls as one piece of code


class Observer(Protocol):
    """Receives the progress of a run."""

    def begin(self, total_jobs: int, stages: list[str]) -> None:
        """`total_jobs` processes will be started for these stages."""

    def start(self, stage: str, round: int, rounds: int) -> None:
        """A process starts; rounds count from 1."""

    def step(self, what: str) -> None:
        """The current activity changes."""

    def finish(self, stage: str, status: str, text: str) -> None:
        """A process has ended and its result is saved."""

    def note(self, text: str) -> None:
        """A message for the user."""

    def end(self) -> None:
        """The run is complete."""


def cannot_run(stage: Stage) -> str | None:
    """Why a stage cannot run here; None if it can. If only the GPU is too old, the text names the rung below."""
    reason = missing(stage.needs)
    ageless = [need for need in stage.needs if not need.startswith("sm_")]
    return f"{reason}; try {stage.below}" if reason and stage.below and missing(ageless) is None else reason


class Runner:
    """One run of the ladder; its results go to one folder."""

    def __init__(self, results: Results, entries: Sequence[Entry], dataset: Dataset, problem: Problem, folder: Path):
        self._results = results
        self._settings = results.settings
        self._dataset = dataset
        self._stage_problem = problem  # the stages must not know the seed of the initial parameters
        self._problem = drawn(problem, results.settings.salt)  # with that seed, for oracle and verification
        self._folder = folder.resolve()  # absolute, since workers have another working folder
        self._profile_folder = self._folder / PROFILES
        self._gpu_memory_mib = (results.environment.get("gpu") or {}).get("memory_mib")
        self._requested_plan = Plan(problem.epochs, results.settings.repeats, results.settings.warmups)
        self._steps = problem.steps(len(dataset.train.images))
        self._oracles: dict[int | None, OracleRun] = {}  # by run number; None is the epoch from zeros
        self._first_batches: dict[int, FirstBatches] = {}  # by run number
        known = {stage.name: stage for stage in results.stages}
        self._began = time.monotonic() - results.seconds
        self._took_s = dict(results.took_s)
        self._stage_runs = [StageRun(entry, self._steps, known.get(entry.stage.name)) for entry in entries]

    def run(self, observer: Observer) -> Results:
        """Measure all missing rounds, saving the results after every process.

        Raises UsageError if the GPU's clocks cannot be locked or the oracle cannot be trained.
        """
        with locked_clocks(self._settings.lock_clocks_mhz, observer.note):
            return self._run(observer)

    def _run(self, observer: Observer) -> Results:
        rounds = range(self._settings.rounds)
        tool = nsys.find() if "nsys" in self._settings.profile else None
        self._skip_unrunnable()
        todo = [(round_, one) for round_ in rounds for one in self._missing_in(round_)]
        observer.begin(len(todo), [one.name for one in self._stage_runs])
        for stage_run in self._stage_runs:
            if stage_run.status == "skipped":
                observer.note(f"{stage_run.name}: skipped: {stage_run.reason}")
        self._save()
        for leftover in self._folder.glob(f"{SCRATCH}*"):  # of a run that was killed
            shutil.rmtree(leftover, ignore_errors=True)
        with tempfile.TemporaryDirectory(prefix=SCRATCH, dir=self._folder) as name:
            scratch = Path(name)
            self._dataset.save(scratch / "dataset")
            began = time.monotonic()
            if todo:
                if (
                    self._settings.at_once == 1
                    and self._results.limits is None
                    and missing(("cuda",)) is None
                    and any(one.entry.stage.needs for _, one in todo)
                ):
                    observer.step("measuring the GPU's limits")
                    self._measure_limits(scratch)
                wanted = sorted({round_ for round_, _ in todo})
                with ExitStack() as begun:
                    importing = {
                        round_: begun.enter_context(closing(self._fork_servers(round_, self._missing_in(round_))))
                        for round_ in wanted[: ROUNDS_IMPORTED_AHEAD if self._settings.at_once == 1 else 0]
                    }
                    # Not beside the compilers: the epochs that the oracle completes in its budget limit verification.
                    self._train_oracles(rounds, scratch, observer)
                    self._record_oracle(self._oracles[run_number(rounds[-1], 0)])
                    jobs, logs = self.compile_jobs(scratch / "dataset"), self._folder / "logs"
                    compiling = begun.enter_context(Compilers(jobs, scratch, logs, self._settings.timeout_s))
                    if compiling.names:
                        observer.step(f"compiling {', '.join(compiling.names)}")
                        with self._timing_activity("compiling"):
                            compiled = compiling.wait()
                        self.record_compile_times(compiled)
                    with self._timing_activity("importing libraries"):
                        for fork_servers in importing.values():
                            fork_servers.wait()
                    for round_ in wanted:
                        self._run_round(
                            round_, self._missing_in(round_), scratch, observer, fork_servers=importing.get(round_)
                        )
            self._repeat_disturbed(scratch, observer)
            self._add_rounds(began, scratch, observer)
            if "nsys" in self._settings.profile:
                self._profile_all_with_nsys(tool, scratch, observer)
        observer.end()
        return self._results

    def _skip_unrunnable(self) -> None:
        for stage_run in self._stage_runs:
            stage = stage_run.entry.stage
            reason = cannot_run(stage) or stage.misfit(self._problem, self._steps)
            if stage.needs and reason is None:
                validated = len(self._dataset.test.images) if self._problem.validate_every else 0
                images = len(self._dataset.train.images) + validated
                reason = gpu_has_no_room(self._problem, images, self._gpu_memory_mib)
            if reason is not None and not stage_run.processes:
                stage_run.skip(reason)

    def compile_jobs(self, folder: Path) -> dict[str, Job]:
        """The jobs that compile stages ahead of the run, by stage name; saves their dataset in `folder`."""
        self._skip_unrunnable()
        jobs = {
            stage_run.name: msgspec.structs.replace(self._job(stage_run, 0, folder), profile=None, compiles=True)
            for stage_run in self._stage_runs
            if stage_run.needs_compiling
        }
        if jobs and not folder.exists():
            self._dataset.save(folder)
        return jobs

    def record_compile_times(self, took_s: Mapping[str, float]) -> None:
        """Record each stage's preparation time by name; saved now, as the measured processes will not compile again."""
        for stage_run in self._stage_runs:
            stage_run.compiled_s = took_s.get(stage_run.name, stage_run.compiled_s)
        self._save()  # without counting the time: compilers may have served other points of a study as well

    def _missing_in(self, round_: int) -> list[StageRun]:
        """The stages that this round still has to measure."""
        return [one for one in self._stage_runs if one.needs_round(round_)]

    def _fork_servers(self, round_: int, stage_runs: Sequence[StageRun]) -> ForkServers:
        """The fork servers of a round for these stages; they start importing at once."""
        return ForkServers([one.entry.stage.needs for one in stage_runs], self._folder / "logs", round_)

    def _run_round(
        self,
        round_: int,
        stage_runs: Sequence[StageRun],
        scratch: Path,
        observer: Observer,
        deadline: float = math.inf,
        fork_servers: ForkServers | None = None,
    ) -> None:
        """Run one process for each of these stages; none starts after `deadline`, a time of the monotonic clock."""
        if self._settings.at_once > 1:
            self._run_round_side_by_side(round_, stage_runs, scratch, observer)
            return
        with fork_servers or self._fork_servers(round_, stage_runs) as fork_servers:
            for stage_run in stage_runs:
                fork_server = fork_servers.for_needs(stage_run.entry.stage.needs)
                if time.monotonic() < deadline:
                    self._run_process(stage_run, round_, scratch, observer, fork_server)
                # Repeated at once, since later rounds skip failed stages.
                while (
                    stage_run.should_repeat_timer_failure(round_, self._settings.remeasure)
                    and time.monotonic() < deadline
                ):
                    self._run_process(stage_run, round_, scratch, observer, fork_server)

    def _run_round_side_by_side(
        self, round_: int, stage_runs: Sequence[StageRun], scratch: Path, observer: Observer
    ) -> None:
        """Run a round's processes side by side, for runs that verify stages without timing them.

        BLAS gets a share of the cores in each process, and in this one, which checks their results in float64.
        """
        at_once, logs = self._settings.at_once, self._folder / "logs"
        share = max(1, cores_usable() // at_once)
        named = {f"{one.name}.{round_ + 1}": one for one in stage_runs}
        jobs = {
            name: msgspec.structs.replace(self._job(stage_run, round_, scratch / "dataset"), blas_threads=share)
            for name, stage_run in named.items()
        }
        with limit_blas_threads(share), WorkerPool(jobs, at_once, scratch, logs, self._settings.timeout_s) as workers:
            jobs_done = iter(workers)
            for unfinished in range(len(jobs), 0, -1):
                observer.start(f"{min(unfinished, at_once)} side by side", round_ + 1, self._settings.rounds)
                with self._timing_activity("stages' processes"):
                    finished = next(jobs_done)
                self._record(named[finished.name], jobs[finished.name], finished, observer)

    def _train_oracles(self, rounds: Iterable[int], scratch: Path, observer: Observer) -> None:
        """Train the oracle for these rounds and for the epoch from zeros, unless it has been."""
        wanted = [None, *(run_number(round_, 0) for round_ in rounds)]
        if untrained := [run for run in wanted if run not in self._oracles]:
            observer.step("training the float64 oracle")
            with self._timing_activity("training the oracle"):
                self._oracles |= compute_all(
                    self._problem, scratch / "dataset", untrained, ORACLE_BUDGET_S, self._settings.curve_steps
                )

    def _repeat_disturbed(self, scratch: Path, observer: Observer, deadline: float = math.inf) -> None:
        """Measure disturbed processes again, up to `remeasure` times each.

        An undisturbed attempt counts; if there is none, the one that circumstances disturbed least.
        """
        for _ in range(self._settings.remeasure if self._settings.at_once == 1 else 0):
            limit = self._settings.remeasure
            again = [(round_, one) for one in self._stage_runs for round_ in one.rounds_to_repeat(limit)]
            if not again:
                return
            observer.begin(len(again), list(dict.fromkeys(one.name for _, one in again)))
            self._train_oracles({round_ for round_, _ in again}, scratch, observer)
            for round_ in sorted({round_ for round_, _ in again}):
                stage_runs = [one for in_round, one in again if in_round == round_ and one.status == "passed"]
                self._run_round(round_, stage_runs, scratch, observer, deadline)

    def _add_rounds(self, began: float, scratch: Path, observer: Observer) -> None:
        """Add rounds until every stage's interval is as narrow as `precision` asks, or the time is up."""
        precision, deadline = self._settings.precision, began + self._settings.time_cap_s
        while precision is not None and time.monotonic() < deadline:
            wide = [one for one in self._stage_runs if (known := one.interval()) and known.half_width > precision]
            round_ = 1 + max((process.round for one in wide for process in one.processes), default=MAX_ROUNDS)
            if round_ >= MAX_ROUNDS:
                return
            observer.begin(len(wide), [one.name for one in wide])
            self._train_oracles([round_], scratch, observer)
            self._run_round(round_, wide, scratch, observer, deadline)
            self._repeat_disturbed(scratch, observer, deadline)

    def _run_process(
        self, stage_run: StageRun, round_: int, scratch: Path, observer: Observer, fork_server: ForkServer | None
    ) -> None:
        """Run one fresh process for a stage and round, verify it, and save the results."""
        name = stage_run.name
        if reasons := stage_run.set_round_aside(round_):
            observer.note(f"{name}: measuring round {round_ + 1} again: {', '.join(reasons)}")
        observer.start(name, round_ + 1, max(self._settings.rounds, round_ + 1))
        folder = scratch / f"{name}.{round_ + 1}"
        folder.mkdir()
        job = self._job(stage_run, round_, scratch / "dataset")
        observer.step("preparing, warming up, measuring")
        log = self._folder / "logs" / f"{name}.{round_ + 1}.log"
        began = time.monotonic()
        with self._timing_activity("stages' processes"):
            result = run_job(job, folder, log, self._settings.timeout_s, fork_server=fork_server)
        self._record(stage_run, job, FinishedJob(name, folder, result, time.monotonic() - began), observer)

    def _record(self, stage_run: StageRun, job: Job, finished: FinishedJob, observer: Observer) -> None:
        """Verify a finished process and save the results."""
        name, folder, result = stage_run.name, finished.folder, finished.result
        if result.process is not None:
            took, beside = result.process.took_s, self._settings.at_once - 1
            if not beside:  # a pool's workers may have ended before they were polled
                took["start and end"] = finished.seconds - sum(took.values())
            process = msgspec.structs.replace(result.process, beside=beside, detail=result.detail)
            result = msgspec.structs.replace(result, process=process)
        if result.misfit:
            stage_run.skip(result.misfit)
        elif result.error is None:
            observer.step("checking against the oracle")
            try:
                with self._timing_activity("checking"):
                    self._verify(stage_run, job, result, folder)
            except (OSError, ValueError) as error:
                stage_run.crash(f"its process left unusable parameters ({error})")
        else:
            stage_run.crash(result.error)
        if (folder / TRACE).exists():
            self._profile_folder.mkdir(exist_ok=True)
            shutil.move(folder / TRACE, self._profile_folder / f"{name}.cupti.{TRACE}")
        shutil.rmtree(folder, ignore_errors=True)  # parameters of a wide network are hundreds of megabytes
        self._save(measured=True)
        observer.finish(name, stage_run.status or "crashed", stage_run.summary())

    def _profile_all_with_nsys(self, tool: Path | None, scratch: Path, observer: Observer) -> None:
        """Profile the stages that passed on the GPU with nsys, after all timed runs."""
        wanted = self._settings.nsys_stages
        requested = [one for one in self._stage_runs if wanted is None or one.name in wanted]
        stage_runs = [one for one in requested if one.needs_profile("nsys")]
        if stage_runs and tool:
            observer.begin(len(stage_runs), [one.name for one in stage_runs])
        for stage_run in stage_runs:
            if tool is None:
                stage_run.set_unprofiled("nsys", nsys.WHERE_TO_GET_IT)
            else:
                self._profile_with_nsys(stage_run, tool, scratch, observer)
        self._save()

    def _profile_with_nsys(self, stage_run: StageRun, tool: Path, scratch: Path, observer: Observer) -> None:
        """Profile one more process of a stage with nsys; a failure does not change the stage's status."""
        name = stage_run.name
        observer.start(f"{name} under nsys", 1, 1)
        folder = scratch / f"{name}.nsys"
        folder.mkdir()
        job = msgspec.structs.replace(self._job(stage_run, 0, scratch / "dataset"), profile="nsys")
        log = self._folder / "logs" / f"{name}.nsys.log"
        try:
            with self._timing_activity("profiling by nsys"):
                profile = profile_under_nsys(
                    *(tool, job, name, self._steps, stage_run.step_us),
                    scratch=folder,
                    profiles=self._profile_folder,
                    log=log,
                    timeout_s=self._settings.timeout_s,
                )
        except (ProfileError, OSError) as error:
            stage_run.set_unprofiled("nsys", str(error))
            text = f"nsys: {error}"
        else:
            stage_run.add_profile(with_bytes(profile, self._problem) if stage_run.entry.stage.recipe else profile)
            self._check_speed(stage_run)
            text = f"profiled: {profile.kernels_per_step:.3g} kernels a step"
        shutil.rmtree(folder, ignore_errors=True)
        self._save(measured=True)
        observer.finish(name, stage_run.status or "crashed", text)

    def _job(self, stage_run: StageRun, round_: int, dataset: Path) -> Job:
        first = not stage_run.processes
        is_cut = stage_run.plan is None and self._settings.at_once == 1  # side by side, time is no measure
        return Job(
            source=stage_run.entry.source,
            problem=self._stage_problem,
            salt=self._settings.salt,
            dataset=str(dataset),
            round=round_,
            first_updates=sorted({min(batches, self._steps) for batches in FIRST_BATCHES}) if first else [],
            wanted=stage_run.plan or self._requested_plan,
            profile="cupti" if "cupti" in self._settings.profile and stage_run.profile_s <= PROFILE_LIMIT_S else None,
            curve_steps=self._settings.curve_steps if round_ == 0 else 0,
            budget_s=self._settings.budget_s / self._settings.rounds if is_cut else None,
        )

    def _verify(self, stage_run: StageRun, job: Job, result: JobResult, folder: Path) -> None:
        """Verify what a process left, and add it to the stage; raises OSError or ValueError if that is incomplete."""
        problem, train, test = self._problem, self._dataset.train, self._dataset.test
        precision = stage_run.entry.stage.precision
        checks = []
        for first in result.first_updates:
            updated = load_params(folder / f"first-{first.batches}.npy", problem)
            checks += verify_first_update(
                precision, self._first_batches_of(job.round, first.batches), updated, first.metrics
            )
        updates = [first.batches for first in result.first_updates]
        if result.plan is None or result.process is None or updates != job.first_updates:
            raise ValueError("its result is incomplete")
        from_zero = load_params(folder / "from-zero.npy", problem)
        checks += verify_from_zero(problem, precision, from_zero, result.from_zero, self._oracles[None])
        if self._settings.at_once == 1:
            checks.append(verify_timer(result.share_outside))
        final = load_params(folder / "final.npy", problem)
        oracle = self._oracles[run_number(job.round, 0)]
        evaluated, epochs = evaluate_final(final, test.images, test.labels), result.plan.epochs
        accuracy, images = evaluated.accuracy, (len(test.images), len(train.images))
        checks += verify_final(problem, precision, epochs, final, result.metrics, oracle, accuracy, *images)
        checks += verify_validation(problem, precision, epochs, result.validations, oracle, evaluated, len(test.images))
        checks += verify_displacements(result.displacements, result.plan, oracle)
        stage_run.add_process(result, checks, accuracy, shortened=result.plan != self._requested_plan)
        if result.device == "gpu":
            self._check_speed(stage_run)

    def _first_batches_of(self, round_: int, batches: int) -> FirstBatches:
        """The oracle's first `batches` batches, computed once for all stages: a wide network takes seconds."""
        run = run_number(round_, FIRST_UPDATE_RUN + batches)
        if run not in self._first_batches:
            train, initial = self._dataset.train, initial_params(self._problem, run)
            self._first_batches[run] = FirstBatches.of(self._problem, batches, initial, train.images, train.labels)
        return self._first_batches[run]

    def _check_speed(self, stage_run: StageRun) -> None:
        """Compare a stage's time with its bounds on this GPU."""
        if (limits := self._results.limits) is not None:
            stage = stage_run.entry.stage
            stage_run.check_speed(bounds_of(limits, stage, self._problem, self._steps, stage_run.profile))

    def _measure_limits(self, scratch: Path) -> None:
        """Measure the GPU's limits in a process of its own; if it fails, the run only lacks bounds."""
        with self._timing_activity("measuring limits"):
            log = self._folder / "logs" / "limits.log"
            limits = measure_gpu_limits(scratch / "limits.json", log, self._settings.timeout_s)
        self._results = msgspec.structs.replace(self._results, limits=limits)

    @contextmanager
    def _timing_activity(self, what: str) -> Iterator[None]:
        """Add the time inside the context to the run's account of this activity."""
        began = time.monotonic()
        try:
            yield
        finally:
            self._took_s[what] = self._took_s.get(what, 0.0) + time.monotonic() - began

    def _record_oracle(self, oracle: OracleRun) -> None:
        curve = [LossPoint(epoch, seen.mean_loss, seen.accuracy) for epoch, seen in enumerate(oracle.epochs, start=1)]
        accuracy = oracle.tested[-1].accuracy if len(oracle.epochs) == self._problem.epochs else None
        recorded = self._oracles[run_number(0, 0)].curve if self._settings.curve_steps else None
        self._results = msgspec.structs.replace(self._results, oracle=OracleRecord(accuracy, curve, recorded))

    def _save(self, *, measured: bool = False) -> None:
        """Save the current state; the run's duration grows only if something was measured."""
        stages: list[StageResult] = [one.result() for one in self._stage_runs]
        seconds = time.monotonic() - self._began if measured else self._results.seconds
        self._results = msgspec.structs.replace(
            self._results, stages=stages, seconds=seconds, took_s=dict(self._took_s)
        )
        save(self._results, self._folder / "results.json")
