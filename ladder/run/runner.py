"""The scheduler: a fresh process for every stage and round, rounds interleaved, results saved after every one.

Interleaved (A B C, A B C, ...) so that a drift of clocks or temperature lands on every stage alike. Nothing is printed
here; whoever wants to watch passes an `Observer`.
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
from ladder.machine.limits import design_of, floors
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
from ladder.run.under_nsys import watch
from ladder.verify.gates import (
    FirstBatches,
    tested,
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
PROFILES = "profiles"  # the folder of the run in which traces are kept
ORACLE_BUDGET_S = 60.0
PROFILE_S = 3.0  # what CUPTI may take of a stage's process for those of later rounds to be profiled as well
MAX_ROUNDS = 450
IMPORTED_AHEAD = 2  # rounds, while nothing is measured yet; processes of more would fill the memory
FIRST_BATCHES = (1, 3, 17)  # 17 is more than any stage handles as one piece of code: compiled or unrolled steps, too


class Observer(Protocol):
    """Who watches a run."""

    def begin(self, total_jobs: int, stages: list[str]) -> None:
        """So many processes will be started, for these stages."""

    def start(self, stage: str, round: int, rounds: int) -> None:
        """A process starts; rounds count from 1."""

    def step(self, what: str) -> None:
        """What is being done at the moment."""

    def finish(self, stage: str, status: str, text: str) -> None:
        """The process is done."""

    def note(self, text: str) -> None:
        """Something worth a line."""

    def end(self) -> None:
        """All is done."""


def cannot_run(stage: Stage) -> str | None:
    """Why a stage cannot run here; where nothing but the GPU's age is the reason, with the rung below, which can."""
    reason = missing(stage.needs)
    ageless = [need for need in stage.needs if not need.startswith("sm_")]
    return f"{reason}; try {stage.below}" if reason and stage.below and missing(ageless) is None else reason


class Runner:
    """One run of the ladder into one folder."""

    def __init__(self, results: Results, entries: Sequence[Entry], dataset: Dataset, problem: Problem, folder: Path):
        self._results = results
        self._settings = results.settings
        self._dataset = dataset
        self._told = problem  # to the stages; all else goes by the one that parameters are drawn for
        self._problem = drawn(problem, results.settings.salt)
        self._folder = folder.resolve()  # the processes run in another folder
        self._kept = self._folder / PROFILES
        self._gpu_memory_mib = (results.environment.get("gpu") or {}).get("memory_mib")
        self._asked = Plan(problem.epochs, results.settings.repeats, results.settings.warmups)
        self._steps = problem.steps(len(dataset.train.images))
        self._oracles: dict[int | None, OracleRun] = {}  # by run number; None for the epoch from zeros
        self._firsts: dict[int, FirstBatches] = {}  # by run number
        known = {stage.name: stage for stage in results.stages}
        self._began = time.monotonic() - results.seconds
        self._took_s = dict(results.took_s)
        self._rows = [StageRun(entry, self._steps, known.get(entry.stage.name)) for entry in entries]

    def run(self, observer: Observer) -> Results:
        """Measure what is still missing; the results are on disk after every process.

        Raises UsageError where the GPU's clocks cannot be locked, or the oracle cannot be trained.
        """
        with locked_clocks(self._settings.lock_clocks_mhz, observer.note):
            return self._run(observer)

    def _run(self, observer: Observer) -> Results:
        rounds = range(self._settings.rounds)
        tool = nsys.find() if "nsys" in self._settings.profile else None
        self._skip_what_cannot_run()
        todo = [(round_, row) for round_ in rounds for row in self._rows if row.wants(round_)]
        observer.begin(len(todo), [row.entry.stage.name for row in self._rows])
        for row in self._rows:
            if row.status == "skipped":
                observer.note(f"{row.entry.stage.name}: skipped: {row.reason}")
        self._save()
        for left in self._folder.glob(f"{SCRATCH}*"):  # by a run that was killed
            shutil.rmtree(left, ignore_errors=True)
        with tempfile.TemporaryDirectory(prefix=SCRATCH, dir=self._folder) as name:
            scratch = Path(name)
            self._dataset.save(scratch / "dataset")
            began = time.monotonic()
            if todo:
                if (
                    self._settings.at_once == 1
                    and self._results.limits is None
                    and missing(("cuda",)) is None
                    and any(row.entry.stage.needs for _, row in todo)
                ):
                    observer.step("measuring the GPU's limits")
                    self._measure_limits(scratch)
                wanted = sorted({round_ for round_, _ in todo})
                with ExitStack() as begun:
                    importing = {
                        round_: begun.enter_context(closing(self._fork_servers(round_, self._wanting(round_))))
                        for round_ in wanted[: IMPORTED_AHEAD if self._settings.at_once == 1 else 0]
                    }
                    # Not beside the compilers: how far the oracle comes in its time is how much can be verified.
                    self._train_oracles(rounds, scratch, observer)
                    self._note_oracle(self._oracles[run_number(rounds[-1], 0)])
                    jobs, logs = self.to_compile(scratch / "dataset"), self._folder / "logs"
                    compiling = begun.enter_context(Compilers(jobs, scratch, logs, self._settings.timeout_s))
                    if compiling.names:
                        observer.step(f"compiling {', '.join(compiling.names)}")
                        with self._taking("compiling"):
                            compiled = compiling.wait()
                        self.compiled(compiled)
                    with self._taking("importing libraries"):
                        for fork_servers in importing.values():
                            fork_servers.wait()
                    for round_ in wanted:
                        self._round(
                            round_, self._wanting(round_), scratch, observer, fork_servers=importing.get(round_)
                        )
            self._measure_again(scratch, observer)
            self._add_rounds(began, scratch, observer)
            if "nsys" in self._settings.profile:
                self._watch_all(tool, scratch, observer)
        observer.end()
        return self._results

    def _skip_what_cannot_run(self) -> None:
        for row in self._rows:
            stage = row.entry.stage
            reason = cannot_run(stage) or stage.misfit(self._problem, self._steps)
            if stage.needs and reason is None:
                validated = len(self._dataset.test.images) if self._problem.validate_every else 0
                images = len(self._dataset.train.images) + validated
                reason = gpu_has_no_room(self._problem, images, self._gpu_memory_mib)
            if reason is not None and not row.processes:
                row.skip(reason)

    def to_compile(self, folder: Path) -> dict[str, Job]:
        """What the stages that compile for long are still to compile, by their names; the data is in the folder then.

        `Compilers` does it, before anything is measured.
        """
        self._skip_what_cannot_run()
        jobs = {
            row.entry.stage.name: msgspec.structs.replace(self._job(row, 0, folder), profile=None, compiles=True)
            for row in self._rows
            if row.wants_compiling
        }
        if jobs and not folder.exists():
            self._dataset.save(folder)
        return jobs

    def compiled(self, took_s: Mapping[str, float]) -> None:
        """Note how long each of these stages took to prepare there, on disk before what they left is used."""
        for row in self._rows:
            row.compiled_s = took_s.get(row.entry.stage.name, row.compiled_s)
        self._save()  # the time is this run's alone where it is no study's, and then the next one counts it

    def _wanting(self, round_: int) -> list[StageRun]:
        """The rows that are still to be measured in this round."""
        return [row for row in self._rows if row.wants(round_)]

    def _fork_servers(self, round_: int, rows: Sequence[StageRun]) -> ForkServers:
        """Those that these rows' processes of the round come from, importing from now on."""
        return ForkServers([row.entry.stage.needs for row in rows], self._folder / "logs", round_)

    def _round(
        self,
        round_: int,
        rows: Sequence[StageRun],
        scratch: Path,
        observer: Observer,
        ends: float = math.inf,
        fork_servers: ForkServers | None = None,
    ) -> None:
        """One process for each of these stages, none of which failed in an earlier round; none begins after the end."""
        if self._settings.at_once > 1:
            self._round_at_once(round_, rows, scratch, observer)
            return
        with fork_servers or self._fork_servers(round_, rows) as fork_servers:
            for row in rows:
                fork_server = fork_servers.for_needs(row.entry.stage.needs)
                if time.monotonic() < ends:
                    self._process(row, round_, scratch, observer, fork_server)
                # At once, since later rounds measure only what has not failed.
                while row.in_doubt(round_, self._settings.remeasure) and time.monotonic() < ends:
                    self._process(row, round_, scratch, observer, fork_server)

    def _round_at_once(self, round_: int, rows: Sequence[StageRun], scratch: Path, observer: Observer) -> None:
        """The same side by side, for runs that ask what stages compute and not how long they take.

        BLAS has a share of the cores in each of them, and here, where float64 checks what they leave.
        """
        at_once, logs = self._settings.at_once, self._folder / "logs"
        share = max(1, cores_usable() // at_once)
        named = {f"{row.entry.stage.name}.{round_ + 1}": row for row in rows}
        jobs = {
            name: msgspec.structs.replace(self._job(row, round_, scratch / "dataset"), blas_threads=share)
            for name, row in named.items()
        }
        with limit_blas_threads(share), WorkerPool(jobs, at_once, scratch, logs, self._settings.timeout_s) as workers:
            jobs_done = iter(workers)
            for left in range(len(jobs), 0, -1):
                observer.start(f"{min(left, at_once)} side by side", round_ + 1, self._settings.rounds)
                with self._taking("stages' processes"):
                    finished = next(jobs_done)
                self._take_in(named[finished.name], jobs[finished.name], finished, observer)

    def _train_oracles(self, rounds: Iterable[int], scratch: Path, observer: Observer) -> None:
        """Have the oracle's runs of these rounds, and its epoch from zeros."""
        wanted = [None, *(run_number(round_, 0) for round_ in rounds)]
        if lacking := [run for run in wanted if run not in self._oracles]:
            observer.step("training the float64 oracle")
            with self._taking("training the oracle"):
                self._oracles |= compute_all(
                    self._problem, scratch / "dataset", lacking, ORACLE_BUDGET_S, self._settings.curve_steps
                )

    def _measure_again(self, scratch: Path, observer: Observer, ends: float = math.inf) -> None:
        """Put what was disturbed aside and measure it anew, so often as the settings say; the last attempt counts."""
        for _ in range(self._settings.remeasure if self._settings.at_once == 1 else 0):
            again = [(round_, row) for row in self._rows for round_ in row.disturbed_rounds(self._settings.remeasure)]
            if not again:
                return
            observer.begin(len(again), list(dict.fromkeys(row.entry.stage.name for _, row in again)))
            self._train_oracles({round_ for round_, _ in again}, scratch, observer)
            for round_ in sorted({round_ for round_, _ in again}):
                rows = [row for one, row in again if one == round_ and row.status == "passed"]
                self._round(round_, rows, scratch, observer, ends)

    def _add_rounds(self, began: float, scratch: Path, observer: Observer) -> None:
        """Go on until every stage's interval is narrow enough, or the time is up."""
        precision, ends = self._settings.precision, began + self._settings.time_cap_s
        while precision is not None and time.monotonic() < ends:
            wide = [row for row in self._rows if (known := row.interval()) and known.half_width > precision]
            round_ = 1 + max((process.round for row in wide for process in row.processes), default=MAX_ROUNDS)
            if round_ >= MAX_ROUNDS:
                return
            observer.begin(len(wide), [row.entry.stage.name for row in wide])
            self._train_oracles([round_], scratch, observer)
            self._round(round_, wide, scratch, observer, ends)
            self._measure_again(scratch, observer, ends)

    def _process(
        self, row: StageRun, round_: int, scratch: Path, observer: Observer, fork_server: ForkServer | None
    ) -> None:
        """One fresh process for one stage and round, its verification, and the results on disk."""
        name = row.entry.stage.name
        if reasons := row.put_aside(round_):
            observer.note(f"{name}, round {round_ + 1}, is measured again: {', '.join(reasons)}")
        observer.start(name, round_ + 1, max(self._settings.rounds, round_ + 1))
        folder = scratch / f"{name}.{round_ + 1}"
        folder.mkdir()
        job = self._job(row, round_, scratch / "dataset")
        observer.step("preparing, warming up, measuring")
        log = self._folder / "logs" / f"{name}.{round_ + 1}.log"
        began = time.monotonic()
        with self._taking("stages' processes"):
            report = run_job(job, folder, log, self._settings.timeout_s, fork_server=fork_server)
        self._take_in(row, job, FinishedJob(name, folder, report, time.monotonic() - began), observer)

    def _take_in(self, row: StageRun, job: Job, finished: FinishedJob, observer: Observer) -> None:
        """Verify what a process has left, and have the results on disk."""
        name, folder, report = row.entry.stage.name, finished.folder, finished.result
        if report.process is not None:
            took, beside = report.process.took_s, self._settings.at_once - 1
            if not beside:  # where others end, it may have waited to be looked at
                took["start and end"] = finished.seconds - sum(took.values())
            process = msgspec.structs.replace(report.process, beside=beside, detail=report.detail)
            report = msgspec.structs.replace(report, process=process)
        if report.misfit:
            row.skip(report.misfit)
        elif report.error is None:
            observer.step("checking against the oracle")
            try:
                with self._taking("checking"):
                    self._judge(row, job, report, folder)
            except (OSError, ValueError) as error:
                row.crash(f"its process left no whole parameters ({error})")
        else:
            row.crash(report.error)
        if (folder / TRACE).exists():
            self._kept.mkdir(exist_ok=True)
            shutil.move(folder / TRACE, self._kept / f"{name}.cupti.{TRACE}")
        shutil.rmtree(folder, ignore_errors=True)  # parameters of a wide network are hundreds of megabytes
        self._save(measured=True)
        observer.finish(name, row.status or "crashed", row.summary())

    def _watch_all(self, tool: Path | None, scratch: Path, observer: Observer) -> None:
        """Profile with nsys what passed on the GPU, now that nothing is timed any more."""
        wanted = self._settings.nsys_stages
        rows = [row for row in self._rows if wanted is None or row.entry.stage.name in wanted]
        rows = [row for row in rows if row.wants_watching("nsys")]
        if rows and tool:
            observer.begin(len(rows), [row.entry.stage.name for row in rows])
        for row in rows:
            if tool is None:
                row.not_watched("nsys", nsys.WHERE_TO_GET_IT)
            else:
                self._watch(row, tool, scratch, observer)
        self._save()

    def _watch(self, row: StageRun, tool: Path, scratch: Path, observer: Observer) -> None:
        """One more process for a stage that passed, which nsys watches; the row stays what it is."""
        name = row.entry.stage.name
        observer.start(f"{name} under nsys", 1, 1)
        folder = scratch / f"{name}.nsys"
        folder.mkdir()
        job = msgspec.structs.replace(self._job(row, 0, scratch / "dataset"), profile="nsys")
        log = self._folder / "logs" / f"{name}.nsys.log"
        try:
            with self._taking("profiling by nsys"):
                profile = watch(
                    *(tool, job, name, self._steps, row.step_us),
                    scratch=folder,
                    kept=self._kept,
                    log=log,
                    timeout_s=self._settings.timeout_s,
                )
        except (ProfileError, OSError) as error:
            row.not_watched("nsys", str(error))
            text = f"nsys: {error}"
        else:
            row.watched(with_bytes(profile, self._problem) if row.entry.stage.recipe else profile)
            self._judge_speed(row)
            text = f"profiled: {profile.kernels_per_step:.3g} kernels a step"
        shutil.rmtree(folder, ignore_errors=True)
        self._save(measured=True)
        observer.finish(name, row.status or "crashed", text)

    def _job(self, row: StageRun, round_: int, dataset: Path) -> Job:
        first = not row.processes
        is_cut = row.plan is None and self._settings.at_once == 1  # side by side, seconds say nothing
        return Job(
            source=row.entry.source,
            problem=self._told,
            salt=self._settings.salt,
            dataset=str(dataset),
            round=round_,
            first_updates=sorted({min(batches, self._steps) for batches in FIRST_BATCHES}) if first else [],
            wanted=row.plan or self._asked,
            profile="cupti" if "cupti" in self._settings.profile and row.profile_s <= PROFILE_S else None,
            curve_steps=self._settings.curve_steps if round_ == 0 else 0,
            budget_s=self._settings.budget_s / self._settings.rounds if is_cut else None,
        )

    def _judge(self, row: StageRun, job: Job, report: JobResult, folder: Path) -> None:
        """Verify what the process did, from the parameters that it left, and note it in the row."""
        problem, train, test = self._problem, self._dataset.train, self._dataset.test
        precision = row.entry.stage.precision
        checks = []
        for first in report.first_updates:
            updated = load_params(folder / f"first-{first.batches}.npy", problem)
            checks += verify_first_update(precision, self._first(job.round, first.batches), updated, first.metrics)
        updates = [first.batches for first in report.first_updates]
        if report.plan is None or report.process is None or updates != job.first_updates:
            raise ValueError("the report lacks what was asked for")
        from_zero = load_params(folder / "from-zero.npy", problem)
        checks += verify_from_zero(problem, precision, from_zero, report.from_zero, self._oracles[None])
        if self._settings.at_once == 1:
            checks.append(verify_timer(report.share_outside))
        final = load_params(folder / "final.npy", problem)
        oracle = self._oracles[run_number(job.round, 0)]
        evaluated, epochs = tested(final, test.images, test.labels), report.plan.epochs
        accuracy, images = evaluated.accuracy, (len(test.images), len(train.images))
        checks += verify_final(problem, precision, epochs, final, report.metrics, oracle, accuracy, *images)
        checks += verify_validation(problem, precision, epochs, report.validations, oracle, evaluated, len(test.images))
        checks += verify_displacements(report.displacements, report.plan, oracle)
        row.add(report, checks, accuracy, shortened=report.plan != self._asked)
        if report.device == "gpu":
            self._judge_speed(row)

    def _first(self, round_: int, batches: int) -> FirstBatches:
        """What the oracle makes of so many first batches, once for all stages: of a wide network that takes seconds."""
        run = run_number(round_, FIRST_UPDATE_RUN + batches)
        if run not in self._firsts:
            train, initial = self._dataset.train, initial_params(self._problem, run)
            self._firsts[run] = FirstBatches.of(self._problem, batches, initial, train.images, train.labels)
        return self._firsts[run]

    def _judge_speed(self, row: StageRun) -> None:
        """Hold a row's time against what this GPU can do at best."""
        if self._results.limits is not None:
            stage = row.entry.stage
            design = None
            if stage.recipe and row.profile:
                chip = self._results.limits.chip
                early = stage.recipe.launch.are_dependents
                exchanges = stage.exchanges(self._problem, self._steps, chip.multiprocessors, chip.block_shared_bytes)
                design = design_of(row.profile, self._steps, exchanges, are_dependents=early)
            row.judge_speed(floors(self._results.limits, self._problem, stage.precision, design))

    def _measure_limits(self, scratch: Path) -> None:
        """Ask a process of its own; without an answer there are no floors, and nothing else is lost."""
        with self._taking("measuring limits"):
            log = self._folder / "logs" / "limits.log"
            limits = measure_gpu_limits(scratch / "limits.json", log, self._settings.timeout_s)
        self._results = msgspec.structs.replace(self._results, limits=limits)

    @contextmanager
    def _taking(self, what: str) -> Iterator[None]:
        """Count what it takes, however it ends."""
        began = time.monotonic()
        try:
            yield
        finally:
            self._took_s[what] = self._took_s.get(what, 0.0) + time.monotonic() - began

    def _note_oracle(self, oracle: OracleRun) -> None:
        curve = [LossPoint(epoch, seen.mean_loss, seen.accuracy) for epoch, seen in enumerate(oracle.epochs, start=1)]
        accuracy = oracle.tested[-1].accuracy if len(oracle.epochs) == self._problem.epochs else None
        recorded = self._oracles[run_number(0, 0)].curve if self._settings.curve_steps else None
        self._results = msgspec.structs.replace(self._results, oracle=OracleRecord(accuracy, curve, recorded))

    def _save(self, *, measured: bool = False) -> None:
        """Write what is known by now; time counts only where something was measured in it."""
        stages: list[StageResult] = [row.result() for row in self._rows]
        seconds = time.monotonic() - self._began if measured else self._results.seconds
        self._results = msgspec.structs.replace(
            self._results, stages=stages, seconds=seconds, took_s=dict(self._took_s)
        )
        save(self._results, self._folder / "results.json")
