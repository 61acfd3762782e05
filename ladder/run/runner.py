"""The scheduler of a run: one fresh process per stage and round, with the results saved after each process.

Rounds are interleaved (A B C, A B C, ...), so that a drift of clocks or temperature affects all stages alike. This
module prints nothing; a `RunObserver` receives the progress.
"""

from __future__ import annotations

import hashlib
import math
import shutil
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path

import msgspec

from common.blas import limit_blas_threads, worthwhile_threads
from common.cache import cache_folder
from common.cost import parameters
from common.data.dataset import Dataset
from common.files import naming
from common.problem import Problem
from ladder.machine.clock_lock import locked_clocks
from ladder.machine.environment import cores_usable, missing
from ladder.machine.gpu_monitor import GpuMonitor
from ladder.machine.limits import keep_limits
from ladder.measure.protocol import TRACE, Job, JobResult
from ladder.measure.timing import Plan
from ladder.processes.fork_servers import ForkServer, ForkServers
from ladder.processes.held_workers import FEWEST, HeldWorker, HeldWorkers
from ladder.processes.seed_server import Attempt, SeedServer
from ladder.processes.worker_pool import Compilers, FinishedJob, WorkerPool
from ladder.processes.worker_process import (
    PATIENCE,
    first_printed,
    late,
    measure_cpu_limits,
    measure_gpu_limits,
    run_job,
)
from ladder.profile import nsys
from ladder.profile.summary import with_bytes
from ladder.records.exactness import FAR_BEHIND_IN_WORDS, far_behind
from ladder.records.run import Results
from ladder.run.bounds import Bounds
from ladder.run.check import FIRST_BATCHES, OVERWROTE, Checker, short_runs_job
from ladder.run.code_watch import Disk
from ladder.run.expected import expected_here
from ladder.run.judge import drawn_salt
from ladder.run.jury import Jury
from ladder.run.ledger import Ledger
from ladder.run.observer import RunObserver
from ladder.run.preflight import cannot_run, gpu_has_no_room, misfit, room_for_stages
from ladder.run.scratch import scratch_folder
from ladder.run.stage_run import StageRun
from ladder.run.under_nsys import profiled
from stages.registry import Entry

PROFILES = "profiles"  # subfolder for traces and nsys reports
PROFILE_LIMIT_S = 1.0  # if profiling takes longer in a stage's process, later rounds are not profiled
MAX_ROUNDS = 450
IN_PROCESSES = "stages' processes"  # a part of the run's time
REPEATING_SHARE, LEAST_REPEATING_S = 0.5, 10.0  # of that time, for measuring disturbed processes again
FEWEST_DISTURBED = 4  # processes; fewer say little of the machine
BUSY = (
    "this machine is busy: other work disturbed every process; end it and start anew; until then differences mean "
    "little"
)
# Rounds whose fork servers import before anything is measured; more of them would fill the memory.
ROUNDS_IMPORTED_AHEAD = 2
CORES_FOR_ORACLE = 4  # where stages prepare beside it
LEAST_BUDGET_S = 0.1  # for a stage, where the others have used up the run's


@contextmanager
def _running(timer: threading.Timer) -> Iterator[None]:
    """Run a timer inside the context only."""
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _names(jobs: Iterable[tuple[int, StageRun]]) -> list[str]:
    """The names of the stages with a job, each once."""
    return list(dict.fromkeys(stage_run.name for _, stage_run in jobs))


class Runner:
    """One run of the ladder; its results go to one folder.

    The salt of the initial parameters is drawn here, and is in no file before everything is measured.
    """

    def __init__(
        self,
        results: Results,
        entries: Sequence[Entry],
        dataset: Dataset,
        problem: Problem,
        folder: Path,
        salt: int | None = None,
        checked_first: Collection[str] = (),
    ):
        """`checked_first` names stages that are measured only if a check without timed runs finds them right."""
        self._checked_first = checked_first
        self._salt = drawn_salt() if salt is None else salt
        self._dataset = dataset
        self._observer: RunObserver
        self._scratch: Path  # with the data set and what processes leave, while the run lasts
        self._problem = problem
        self._gpu = GpuMonitor()
        timed = results.settings.at_once == 1
        self._judge = Jury(problem, dataset, self._salt, results.settings.curve_steps, timed=timed)
        self._requested_plan = Plan(problem.epochs, results.settings.repeats, results.settings.warmups)
        self._steps = problem.steps(len(dataset.train.images))
        known = {stage.name: stage for stage in results.stages}
        self._suspects: set[str] = set()  # jobs that ran while the shared data changed
        gpu = (results.environment.get("gpu") or {}).get("name")
        expected = expected_here(problem, self._steps, gpu) if problem.networks == 1 else {}
        disk = Disk()
        stages = [
            StageRun(entry, self._steps, known.get(entry.stage.name), expected.get(entry.stage.name), disk)
            for entry in entries
        ]
        self._ledger = Ledger(results, stages, folder)
        self._settings = results.settings
        self._bounds = Bounds(self._ledger, problem, dataset)
        self._profile_folder = self._ledger.folder / PROFILES
        self._side_by_side = self._most_side_by_side()

    def record_compile_times(self, took_s: Mapping[str, float]) -> None:
        """Record each stage's preparation time by name."""
        self._ledger.keep_compile_times(took_s)

    @property
    def results(self) -> Results:
        """What is measured so far."""
        return self._ledger.results

    def run(self, observer: RunObserver) -> Results:
        """Measure all missing rounds, saving the results after every process.

        Raises UsageError if the GPU's clocks cannot be locked or the oracle cannot be trained.
        """
        self._observer = observer
        with locked_clocks(self._settings.lock_clocks_mhz, observer.note):
            return self._run()

    def _run(self) -> Results:
        rounds = range(self._settings.rounds)
        tool = nsys.find() if "nsys" in self._settings.profile else None
        self._skip_unrunnable()
        self._check_first()
        todo = [(round_, stage) for round_ in rounds for stage in self._missing_in(round_)]
        if before := sum(len(stage.processes) for stage in self._ledger.stages):
            self._observer.note(f"continuing: {before} of {before + len(todo)} processes were measured before")
        if skipped := {stage.name: stage.reason or "" for stage in self._ledger.stages if stage.status == "skipped"}:
            self._observer.skip(skipped)
        if self._settings.energy and self._gpu.energy_j() is None:
            self._observer.note(
                "--energy: there is no GPU here whose NVML counts energy; times are measured without it"
            )
        for stage in dict.fromkeys(stage for _, stage in todo):
            if stage.expected and stage.expected.remark:
                self._observer.note(f"{stage.name}: {stage.expected.remark}")
        if todo or not before:
            self._observer.begin(len(todo), _names(todo))
        self._ledger.save()
        with scratch_folder(self._ledger.folder, self.scratch_bytes) as self._scratch:
            self._dataset.save(self._scratch / "dataset")
            began = time.monotonic()
            if todo:
                self._measure_rounds(sorted({round_ for round_, _ in todo}))
            self._repeat_disturbed()
            self._add_rounds(began)
            if "nsys" in self._settings.profile:
                self._profile_all_with_nsys(tool)
        self._ledger.reveal(self._salt if self._judge.has_trained else None)
        self._ledger.save()
        self._observer.end()
        return self._ledger.results

    def _measure_missing_cpu_limits(self, stage_runs: Sequence[StageRun]) -> None:
        """Measure the limits of the CPU that these stages are compared with, beside nothing else.

        In a process of its own; if it fails, the run only lacks floors.
        """
        if (
            self._settings.at_once == 1
            and self._ledger.results.cpu_limits is None
            and any(o.is_on_cpu for o in stage_runs)
        ):
            self._observer.step("measuring the CPU's limits")
            with self._ledger.timing("measuring limits"):
                log = self._ledger.folder / "logs" / "cpu-limits.log"
                limits = measure_cpu_limits(self._scratch / "cpu-limits.json", log, self._settings.timeout_s)
            self._ledger.keep(cpu_limits=limits)

    def _measure_missing_gpu_limits(self, stage_runs: Sequence[StageRun]) -> None:
        """Measure the limits of the GPU that these stages are compared with; nothing else may use the GPU.

        They take longer than the first rows, and so come after them: a row that lies below them fails then. They are
        measured in a process of their own; if it fails, the run only lacks bounds.
        """
        if self._settings.at_once > 1 or self._ledger.results.limits is not None or missing(("cuda",)) is not None:
            return
        if any(stage.entry.stage.needs for stage in stage_runs):
            self._observer.step("measuring the GPU's limits")
            with self._ledger.timing("measuring limits"):
                log = self._ledger.folder / "logs" / "limits.log"
                limits = measure_gpu_limits(self._scratch / "limits.json", log, self._settings.timeout_s)
            if limits is not None:
                keep_limits(self._ledger.results.environment, limits)
            self._ledger.keep(limits=limits)
            for stage_run in self._ledger.stages:
                passed = stage_run.status == "passed"
                if stage_run.device == "gpu":
                    self._bounds.check(stage_run)
                if passed and stage_run.status != "passed":
                    self._observer.note(f"{stage_run.name}: {stage_run.reason}")

    def _measure_rounds(self, rounds: Sequence[int]) -> None:
        """Measure what is missing in these rounds. In the first one, stages that compile for long come last."""
        stage_runs = [
            stage for stage in self._ledger.stages if any(stage in self._missing_in(round_) for round_ in rounds)
        ]
        self._measure_missing_cpu_limits(stage_runs)
        beside: Compilers | None = None
        with ExitStack() as begun:
            held = begun.enter_context(closing(self._held_workers()))
            importing = {
                round_: begun.enter_context(closing(self._fork_servers(round_, self._missing_in(round_))))
                for round_ in rounds[: ROUNDS_IMPORTED_AHEAD if self._settings.at_once == 1 else 0]
            }
            for round_ in list(importing)[:1]:  # beside the oracle, which takes as long
                make = partial(self._held_worker, round_, importing[round_])
                self._prepare_next(held, self._quick_in(round_), make)
                if self._compiles_beside:  # what a worker compiles only in its turn, once it has timed something
                    beside = begun.enter_context(self._compilers(importing[round_]))
            self._train_oracles(range(self._settings.rounds))
            self._ledger.keep_oracle(self._judge.record(self._settings.rounds - 1))
            with self._ledger.timing("importing libraries"):
                for fork_servers in importing.values():
                    fork_servers.wait()
            if beside is not None:
                self._await_compiled(beside)
            for round_ in rounds:
                with importing.get(round_) or self._fork_servers(round_, self._missing_in(round_)) as fork_servers:
                    if behind := [stage.name for stage in self._ledger.stages if self._is_left_out(stage, round_)]:
                        self._observer.leave_out(behind, f"round {round_ + 1}: {FAR_BEHIND_IN_WORDS}")
                    quick = self._quick_in(round_)
                    self._run_round(round_, quick, fork_servers=fork_servers, held=held)
                    self._measure_missing_gpu_limits(stage_runs)
                    rest = [stage for stage in self._missing_in(round_) if stage not in quick]
                    with self._compilers(fork_servers) as compilers:
                        self._await_compiled(compilers)
                    self._run_round(round_, rest, fork_servers=fork_servers, held=held)

    @property
    def _compiles_beside(self) -> bool:
        """Whether stages compile while they prepare, as in a single round, which compiles nothing for a later one."""
        return self._settings.rounds == 1 and self._side_by_side >= FEWEST

    def _compilers(self, fork_servers: ForkServers) -> Compilers:
        """What compiles the stages that take long, side by side."""
        jobs, logs = self.compile_jobs(self._scratch / "dataset"), self._ledger.folder / "logs"
        needs = {stage.name: stage.entry.stage.needs for stage in self._ledger.stages}

        def fork_server_of(name: str) -> ForkServer | None:
            return fork_servers.for_needs(needs[name])

        return Compilers(jobs, self._scratch, logs, self._settings.timeout_s, self._observer.note, fork_server_of)

    def _await_compiled(self, compilers: Compilers) -> None:
        """Wait for all compilers; nothing may be measured beside them."""
        if compilers.names:
            self._observer.step(f"compiling {len(compilers.names)} of the stages")
            with self._ledger.timing("compiling"):
                compiled = compilers.wait()
            self._ledger.keep_compile_times(compiled)

    @property
    def scratch_bytes(self) -> int:
        """Bytes that the data set takes, and the parameters that processes leave at once."""
        # After the first updates, up to two more short runs each, the epoch from zeros, and the timed runs.
        kept = 3 * len(FIRST_BATCHES) + 1 + self._settings.repeats
        return self._dataset.nbytes + kept * self._parameter_bytes * self._settings.at_once

    @property
    def _parameter_bytes(self) -> int:
        """Bytes of all networks' parameters."""
        return 4 * parameters(self._problem) * self._problem.networks

    def _most_side_by_side(self) -> int:
        """How many stages prepare side by side: as many as the run asks for, or as the GPU and the host have room for.

        Without a GPU, none does: the CPU that they prepare on is what is measured.
        """
        used_mib = self._gpu.memory_used_mib()
        if self._settings.at_once > 1 or self._ledger.gpu_memory_mib is None or used_mib is None:
            return 0
        if not self._gpu.takes_several_processes():
            return 0
        if self._settings.prepare_at_once is not None:
            return self._settings.prepare_at_once
        return room_for_stages(self._problem, len(self._dataset.train.images), self._ledger.gpu_memory_mib - used_mib)

    def _skip_unrunnable(self) -> None:
        for stage_run in self._ledger.stages:
            stage = stage_run.entry.stage
            reason = cannot_run(stage) or misfit(stage, self._problem, self._steps)
            if stage.needs and not reason:
                validated = len(self._dataset.test.images) if self._problem.validate_every else 0
                images = len(self._dataset.train.images) + validated
                reason = gpu_has_no_room(self._problem, images, self._ledger.gpu_memory_mib) or ""
            if reason and not stage_run.processes:
                stage_run.skip(reason)

    def _check_first(self) -> None:
        """Check stages that nothing is known of yet, and record those that are wrong: no round measures them."""
        fresh = [
            stage
            for stage in self._ledger.stages
            if stage.name in self._checked_first and stage.status is None and not stage.processes
        ]
        if not fresh:
            return
        logs, limit_s = self._ledger.folder / "logs", self._settings.timeout_s
        with (
            self._ledger.timing("checking stages of one's own"),
            scratch_folder(self._ledger.folder, self.scratch_bytes) as scratch,
        ):
            precisions = {stage.entry.stage.precision for stage in fresh}
            checker = Checker(self._problem, self._dataset, scratch, logs, limit_s, self._observer.note, precisions)
            for stage_run in fresh:
                stage = StageRun(stage_run.entry, self._steps, expected=stage_run.expected)
                checker.check(stage)
                if stage.status == "crashed":
                    stage.crash(f"{stage.reason}; see logs/{stage.name}.check.log")
                if stage.status != "passed":
                    self._ledger.stages[self._ledger.stages.index(stage_run)] = stage
                self._observer.note(f"{stage.name}, checked first: {stage.reason or 'right'}")

    def compile_jobs(self, folder: Path) -> dict[str, Job]:
        """The jobs that compile stages ahead of the run, by stage name; saves their dataset in `folder`."""
        self._skip_unrunnable()
        jobs = {
            stage_run.name: msgspec.structs.replace(self._job(stage_run, 0, folder), profile=None, compiles=True)
            for stage_run in self._ledger.stages
            if self._needs_compiling(stage_run)
        }
        if jobs and not folder.exists():
            self._dataset.save(folder)
        return jobs

    def _needs_compiling(self, stage_run: StageRun) -> bool:
        """Whether a stage takes long to compile, will be measured, and no run here has compiled it for this problem."""
        due = any(stage_run in self._missing_in(round_) for round_ in range(self._settings.rounds))
        return stage_run.needs_compiling and due and not self._mark(stage_run).exists()

    def _mark(self, stage_run: StageRun) -> Path:
        """The file that says that a stage's compiled code is in the cache."""
        described = [self._ledger.results.environment.get(part) for part in ("gpu", "libraries", "python")]
        parts = [stage_run.code, described, self._ledger.results.problem, cache_folder("").as_posix()]
        return cache_folder("compiled") / hashlib.sha256(msgspec.json.encode(parts, order="sorted")).hexdigest()

    def _missing_in(self, round_: int) -> list[StageRun]:
        """The stages that this round still has to measure."""
        return [
            stage for stage in self._ledger.stages if stage.needs_round(round_) and not self._is_left_out(stage, round_)
        ]

    def _quick_in(self, round_: int) -> list[StageRun]:
        """Those of them that need no compiling first."""
        missing = self._missing_in(round_)
        return missing if self._compiles_beside else [stage for stage in missing if not self._needs_compiling(stage)]

    def _is_left_out(self, stage_run: StageRun, round_: int) -> bool:
        """Whether a stage that was measured before is too far behind to be measured in this round as well."""
        return round_ > 0 and stage_run.needs_round(round_) and self._is_behind(stage_run)

    def _is_behind(self, stage_run: StageRun) -> bool:
        """Whether a stage is a reference of ours that another one leaves far behind, and time is too short for it.

        Where each stage has a time of its own (`--budget`), there is enough.
        """
        is_ours = stage_run.entry.is_ours and stage_run.entry.stage.group == "reference"
        if self._settings.budget_total_s is None or not is_ours:
            return False
        return stage_run.name in far_behind(stage.result() for stage in self._ledger.stages)

    def _fork_servers(self, round_: int, stage_runs: Sequence[StageRun]) -> ForkServers:
        """The fork servers of a round for these stages; they start importing at once."""
        forked = stage_runs if self._settings.at_once == 1 else []
        return ForkServers([stage.entry.stage.needs for stage in forked], self._ledger.folder / "logs", round_)

    def _held_workers(self) -> HeldWorkers:
        """The workers that prepare side by side; none yet."""
        preparing = max(FEWEST, cores_usable() - CORES_FOR_ORACLE)
        return HeldWorkers(self._side_by_side, self._settings.timeout_s, self._observer.note, preparing)

    def _may_be_held(self, stage_run: StageRun) -> bool:
        """Whether a stage may prepare beside others: one of ours on the GPU, whose preparation is known to be quiet."""
        return self._side_by_side >= FEWEST and bool(stage_run.entry.stage.needs) and stage_run.entry.is_ours

    def _prepare_next(
        self, held: HeldWorkers, stage_runs: Sequence[StageRun], make: Callable[[StageRun], HeldWorker]
    ) -> None:
        """Start to prepare the first of these stages side by side, unless some are prepared already."""
        if not len(held):
            able = [stage for stage in stage_runs if self._may_be_held(stage)]
            held.begin([partial(make, stage) for stage in able[: held.at_once]] if len(able) >= FEWEST else [])

    def _held_worker(self, round_: int, fork_servers: ForkServers, stage_run: StageRun) -> HeldWorker:
        """A stage's worker in a round; it prepares at once."""
        server, job = fork_servers.for_needs(stage_run.entry.stage.needs), self._job(stage_run, round_)
        places, seeds = self._places(stage_run, round_), self._seed_server(round_, held=True)
        return HeldWorker(stage_run.name, job, places, seeds, server, list)

    def _places(self, stage_run: StageRun, round_: int) -> tuple[Path, Path]:
        """The folder and the log of a stage's worker in a round."""
        name = f"{stage_run.name}.{round_ + 1}"
        return self._scratch / name, self._ledger.folder / "logs" / f"{name}.log"

    def _run_round(
        self,
        round_: int,
        stage_runs: Sequence[StageRun],
        deadline: float = math.inf,
        fork_servers: ForkServers | None = None,
        held: HeldWorkers | None = None,
    ) -> None:
        """Run one process for each of these stages; none starts after `deadline`, a time of the monotonic clock."""
        if self._settings.at_once > 1:
            self._run_round_side_by_side(round_, stage_runs)
            return
        if fork_servers is None:
            with self._fork_servers(round_, stage_runs) as own:
                self._run_round(round_, stage_runs, deadline, own, held)
            return
        for index, stage_run in enumerate(stage_runs):
            fork_server = fork_servers.for_needs(stage_run.entry.stage.needs)
            worker = None
            if held is not None and held.at_once:
                if self._may_be_held(stage_run) and not len(held):
                    self._observer.step("preparing stages side by side")
                    self._prepare_next(held, stage_runs[index:], partial(self._held_worker, round_, fork_servers))
                with self._ledger.timing("preparing side by side"):
                    worker = held.take(stage_run.name)
            if time.monotonic() < deadline:
                self._run_process(stage_run, round_, fork_server, worker)
            elif worker is not None:
                worker.close()
            # Repeated at once, since later rounds skip failed stages.
            while (
                stage_run.should_repeat_timer_failure(round_, self._settings.remeasure) and time.monotonic() < deadline
            ):
                self._run_process(stage_run, round_, fork_server)

    def _run_round_side_by_side(self, round_: int, stage_runs: Sequence[StageRun]) -> None:
        """Run a round's processes side by side, for runs that verify stages without timing them.

        BLAS gets a share of the cores in each process, and in this one, which checks their results in float64.
        """
        at_once, logs = self._settings.at_once, self._ledger.folder / "logs"
        share = max(1, cores_usable() // at_once)
        named = {f"{stage.name}.{round_ + 1}": stage for stage in stage_runs}
        jobs = {
            name: msgspec.structs.replace(self._job(stage_run, round_), blas_threads=share)
            for name, stage_run in named.items()
        }
        with ExitStack() as serving, limit_blas_threads(share):
            servers = {name: serving.enter_context(self._seed_server(round_)) for name in jobs}
            jobs = {name: msgspec.structs.replace(job, seeds=servers[name].address) for name, job in jobs.items()}
            workers = serving.enter_context(
                WorkerPool(jobs, at_once, self._scratch, logs, self._settings.timeout_s, self._observer.note)
            )
            jobs_done = iter(workers)
            for unfinished in range(len(jobs), 0, -1):
                self._observer.start(f"{min(unfinished, at_once)} side by side", round_ + 1, self._settings.rounds)
                with self._ledger.timing(IN_PROCESSES):
                    finished = next(jobs_done)
                attempt = servers[finished.name].attempt
                self._record(named[finished.name], jobs[finished.name], finished, attempt)

    def _train_oracles(self, rounds: Iterable[int]) -> None:
        """Train the oracle for these rounds, unless it has been."""
        if untrained := self._judge.untrained(rounds):
            self._observer.step("training in float64, to check against")
            precisions = {stage.entry.stage.precision for stage in self._ledger.stages if stage.status != "skipped"}
            job = next((self._job(stage, 0) for stage in self._ledger.stages if stage.needs_round(0)), None)
            with self._ledger.timing("training the oracle"):
                self._judge.train(untrained, self._scratch, precisions, job)

    def _repeat_disturbed(self, deadline: float = math.inf) -> None:
        """Measure disturbed processes again, up to `remeasure` times each.

        An undisturbed attempt counts; if there is none, the one that circumstances disturbed least. Trying again takes
        at most half as long as the stages have taken. Where every process was disturbed, it would help none.
        """
        limit = self._settings.remeasure if self._settings.at_once == 1 else 0
        allowed_s = max(REPEATING_SHARE * self._ledger.took_s(IN_PROCESSES), LEAST_REPEATING_S)
        deadline = min(deadline, time.monotonic() + allowed_s)
        for left in range(limit, 0, -1):
            worth = [stage for stage in self._ledger.stages if not self._is_behind(stage)]
            again = [(round_, stage) for stage in worth for round_ in stage.rounds_to_repeat(limit)]
            if not again or time.monotonic() >= deadline:
                return
            if len(again) >= FEWEST_DISTURBED and all(stage.is_disturbed_throughout for stage in self._ledger.stages):
                self._observer.note(f"{BUSY}; no process is measured again")
                return
            self._observer.begin(
                len(again), _names(again), f"as other work disturbed {'it' if len(again) == 1 else 'them'}"
            )
            tries = "1 more try" if left == 1 else f"{left} more tries"
            self._observer.note(f"at most {tries} of each; Ctrl-C keeps what is measured")
            self._train_oracles({round_ for round_, _ in again})
            for round_ in sorted({round_ for round_, _ in again}):
                stage_runs = [stage for in_round, stage in again if in_round == round_ and stage.status == "passed"]
                self._run_round(round_, stage_runs, deadline)

    def _add_rounds(self, began: float) -> None:
        """Add rounds until every stage's interval is as narrow as `precision` asks, or the time is up."""
        precision, deadline = self._settings.precision, began + self._settings.time_cap_s
        while precision is not None and time.monotonic() < deadline:
            wide = [
                stage for stage in self._ledger.stages if (known := stage.interval()) and known.half_width > precision
            ]
            round_ = 1 + max((process.round for stage in wide for process in stage.processes), default=MAX_ROUNDS)
            if round_ >= MAX_ROUNDS:
                return
            self._observer.begin(
                len(wide), [stage.name for stage in wide], "as their spread is still wider than --precision"
            )
            self._train_oracles([round_])
            self._run_round(round_, wide, deadline)
            self._repeat_disturbed(deadline)

    def _run_process(
        self, stage_run: StageRun, round_: int, fork_server: ForkServer | None, worker: HeldWorker | None = None
    ) -> None:
        """Run one fresh process for a stage and round, or let the prepared one go on; verify it, save the results."""
        name = stage_run.name
        stage_run.set_round_aside(round_)
        attempt = 1 + sum(process.round == round_ for process in stage_run.set_aside)
        attempts = max(attempt, 1 + self._settings.remeasure)
        self._observer.start(name, round_ + 1, max(self._settings.rounds, round_ + 1), attempt, attempts)
        folder, log = self._places(stage_run, round_)
        limit_s = self._settings.timeout_s
        self._observer.step("measuring")
        patience = threading.Timer(limit_s * PATIENCE, self._observer.note, [late(name, limit_s)])
        with self._ledger.timing(IN_PROCESSES), _running(patience):
            if worker is not None:
                job, seeds = worker.job, worker.seeds
                with closing(worker):
                    result = worker.take_turn(limit_s)
                    lasted_s = worker.lasted_s
            else:
                folder.mkdir()
                began = time.monotonic()
                with self._seed_server(round_) as seeds:
                    job = msgspec.structs.replace(self._job(stage_run, round_), seeds=seeds.address)
                    result = run_job(job, folder, log, limit_s, fork_server=fork_server)
                lasted_s = time.monotonic() - began
        finished = FinishedJob(name, folder, result, lasted_s - result.waited_s)
        self._record(stage_run, job, finished, seeds.attempt)

    def _seed_server(self, round_: int, *, held: bool = False) -> SeedServer:
        """The server of the seeds of one stage's runs in a round."""
        return SeedServer(lambda run: self._judge.number(round_, run), self._parameter_bytes, held=held)

    def _record(self, stage_run: StageRun, job: Job, finished: FinishedJob, attempt: Attempt) -> None:
        """Verify a finished process and save the results."""
        name, folder, result = stage_run.name, finished.folder, finished.result
        log = f"see logs/{name}.{job.round + 1}.log"
        if result.process is not None:
            took, beside = result.process.took_s, self._settings.at_once - 1
            if not beside:  # a pool's workers may have ended before they were polled
                took["start and end"] = finished.seconds - sum(took.values())
            rest_mib, peak_mib = self._gpu.memory_used_mib(), result.gpu_peak_mib
            process = msgspec.structs.replace(
                result.process,
                gpu_memory_mib=peak_mib - rest_mib if peak_mib is not None and rest_mib is not None else None,
                beside=beside,
                detail=result.detail,
                stopped_s=result.stopped_s,
                left_behind=result.left,
            )
            result = msgspec.structs.replace(result, process=process)
        stage_run.choices = result.choices or stage_run.choices
        if result.retried:
            stage_run.retries.append(f"round {job.round + 1}: {result.retried}")
            self._observer.note(f"{name}: repeated in a newly started process: {result.retried}")
        if result.left:
            self._observer.note(
                f"{name}: left behind: {', '.join(result.left)}; end and remove them in the trainer's close()"
            )
        if files := stage_run.changed_code():
            stage_run.fail(f"its code changed while it was measured: {', '.join(files)}; start anew")
        elif self._overwrote_data(job, finished):
            culprit = "it or a stage beside it" if self._settings.at_once > 1 else "it"
            stage_run.fail(f"{culprit} {OVERWROTE}")
        elif result.misfit:
            stage_run.skip(misfit(stage_run.entry.stage, self._problem, self._steps, result.misfit))
        elif result.error is None:
            self._observer.step("checking against float64")
            try:
                with self._ledger.timing("checking"):
                    self._verify(stage_run, job, result, attempt, folder)
            except (OSError, ValueError) as error:
                stage_run.crash(f"its parameters cannot be checked: {error}; {log}")
        else:
            stage_run.crash(f"{result.error}; {log}")
        if (folder / TRACE).exists():
            self._profile_folder.mkdir(exist_ok=True)
            target = self._profile_folder / f"{name}.{stage_run.tool}.{TRACE}"
            with naming(target):
                shutil.move(folder / TRACE, target)
        shutil.rmtree(folder, ignore_errors=True)  # parameters of a wide network are hundreds of megabytes
        self._ledger.save(measured=True)
        text, step_us = stage_run.summary(), stage_run.latest_step_us
        self._observer.finish(
            name, stage_run.status or "crashed", text, step_us, disturbed=stage_run.is_latest_disturbed
        )

    def _overwrote_data(self, job: Job, finished: FinishedJob) -> bool:
        """Whether the shared data changed while this process ran; the next one has them whole again."""
        if not self._dataset.is_saved(Path(job.dataset)):
            self._dataset.save(Path(job.dataset))
            self._suspects |= {finished.name, *finished.beside}
        return finished.name in self._suspects

    def _profile_all_with_nsys(self, tool: Path | None) -> None:
        """Profile the stages that passed on the GPU with nsys, after all timed runs.

        They prepare side by side, and one runs at a time, while nsys writes and reads the reports of those before.
        """
        wanted = self._settings.nsys_stages
        requested = [stage for stage in self._ledger.stages if wanted is None or stage.name in wanted]
        stage_runs = [stage for stage in requested if stage.needs_profile("nsys")]
        if tool is None:
            for stage_run in stage_runs:
                stage_run.set_unprofiled("nsys", nsys.WHERE_TO_GET_IT)
        elif stage_runs:
            self._observer.begin(len(stage_runs), [stage.name for stage in stage_runs], "under nsys")
            self._profile_with_nsys(stage_runs, partial(self._held_under_nsys, tool))
        self._ledger.save()

    def _held_under_nsys(self, tool: Path, stage_run: StageRun) -> HeldWorker:
        """One more worker of a stage, under nsys."""
        name, job = stage_run.name, msgspec.structs.replace(self._job(stage_run, 0), profile="nsys")
        assert stage_run.step_us is not None  # nsys profiles stages that passed and were timed
        wrap = profiled(tool, self._profile_folder, name, self._steps, stage_run.step_us)
        places = self._scratch / f"{name}.nsys", self._ledger.folder / "logs" / f"{name}.nsys.log"
        return HeldWorker(name, job, places, self._seed_server(0, held=True), None, wrap)

    def _profile_with_nsys(self, stage_runs: Sequence[StageRun], make: Callable[[StageRun], HeldWorker]) -> None:
        """Profile these stages; a failure does not change a stage's status."""
        reading: list[tuple[StageRun, HeldWorker]] = []
        with ExitStack() as begun:
            held = begun.enter_context(closing(self._held_workers()))
            for index, stage_run in enumerate(stage_runs):
                self._observer.start(f"{stage_run.name} under nsys", 1, 1)
                with self._ledger.timing("profiling by nsys"):
                    if self._may_be_held(stage_run):
                        self._prepare_next(held, stage_runs[index:], make)
                    worker = held.take(stage_run.name) or make(stage_run)
                    begun.enter_context(closing(worker))
                    worker.work_alone(self._settings.timeout_s)
                reading.append((stage_run, worker))
                while reading and reading[0][1].has_ended:
                    self._record_nsys(*reading.pop(0))
            for stage_run, worker in reading:
                self._record_nsys(stage_run, worker)

    def _record_nsys(self, stage_run: StageRun, worker: HeldWorker) -> None:
        """Add what a worker under nsys leaves, once it has ended."""
        with self._ledger.timing("profiling by nsys"), closing(worker):
            result = worker.take_turn(self._settings.timeout_s)
        if result.profile is None:
            stage_run.set_unprofiled("nsys", f"{result.error}")
            text = f"nsys: {result.error}"
        else:
            stage = stage_run.entry.stage
            has_bytes = stage.traits and self._problem.networks == 1 and not stage.takes_gpus
            stage_run.add_profile(with_bytes(result.profile, self._problem) if has_bytes else result.profile)
            self._bounds.check(stage_run)
            text = f"profiled: {result.profile.kernels_per_step:.3g} kernels a step"
        shutil.rmtree(worker.folder, ignore_errors=True)
        self._ledger.save(measured=True)
        self._observer.finish(stage_run.name, stage_run.status or "crashed", text)

    def _job(self, stage_run: StageRun, round_: int, dataset: Path | None = None) -> Job:
        first, tool = not stage_run.processes, stage_run.tool
        is_cut = stage_run.plan is None and self._settings.at_once == 1  # side by side, time is no measure
        job = short_runs_job(stage_run.entry.source, self._problem, self._steps, dataset or self._scratch / "dataset")
        if not first:
            job = msgspec.structs.replace(job, first_updates=[], repeated=[], trained="", late=[])
        return msgspec.structs.replace(
            job,
            round=round_,
            wanted=stage_run.plan or self._requested_plan,
            profile=tool if tool in self._settings.profile and stage_run.profile_s <= PROFILE_LIMIT_S else None,
            curve_steps=self._settings.curve_steps if round_ == 0 else 0,
            energy=self._settings.energy and round_ == 0,
            mark=str(self._mark(stage_run)),
            choices=stage_run.choices,
            budget_s=self._budget_s() / self._settings.rounds if is_cut else None,
        )

    def _budget_s(self) -> float:
        """The seconds for which the next stage may be measured: at most its share of what the others leave of all."""
        budget_s, total_s = self._settings.budget_s, self._settings.budget_total_s
        if total_s is None:
            return budget_s
        planned = [stage for stage in self._ledger.stages if stage.plan is not None]
        spent_s = self._settings.rounds * sum(stage.processes[0].took_s.get("measure", 0.0) for stage in planned)
        unplanned = sum(stage.plan is None and stage.status is None for stage in self._ledger.stages)
        return max(min(budget_s, (total_s - spent_s) / max(unplanned, 1)), LEAST_BUDGET_S)

    def _verify(self, stage_run: StageRun, job: Job, result: JobResult, attempt: Attempt, folder: Path) -> None:
        """Verify what a process left, and add it to the stage; raises OSError or ValueError if that is incomplete."""
        # BLAS's threads stay awake for a while, beside the next stage that is measured.
        with limit_blas_threads(worthwhile_threads(self._problem.multiplications, cores_usable())):
            began = time.monotonic()
            judged = self._judge.judge(stage_run.entry.stage.precision, job, result, attempt, folder)
        assert result.process is not None  # else it could not be judged
        result.process.took_s["checking"] = time.monotonic() - began
        stage_run.printed = first_printed(self._places(stage_run, job.round)[1])
        shortened = result.plan != self._requested_plan
        stage_run.add_process(result, judged.checks, judged.accuracy, shortened=shortened, networks=judged.networks)
        self._bounds.check(stage_run)
