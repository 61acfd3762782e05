"""Every way in which a run starts processes; it knows orders and results, and decides nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path

import msgspec

from common.problem import Problem
from ladder.machine.environment import cores_usable
from ladder.machine.gpu_monitor import GpuMonitor
from ladder.measure.protocol import Job, JobResult
from ladder.processes.fork_servers import ForkServer, ForkServers
from ladder.processes.held_workers import FEWEST, HeldWorker, HeldWorkers
from ladder.processes.seed_server import Attempt, SeedServer
from ladder.processes.worker_pool import Compilers, WorkerPool
from ladder.processes.worker_process import (
    PATIENCE,
    first_printed,
    late,
    measure_cpu_limits,
    measure_gpu_limits,
    run_job,
)
from ladder.records.limits_record import CpuLimits, LimitsRecord
from ladder.run.orders import Order, parameter_bytes
from ladder.run.scratch import scratch_folder
from ladder.run.stage_run import StageRun

CORES_FOR_ORACLE = 4  # where stages prepare beside it


@dataclass(frozen=True)
class Finished:
    """An order whose process has ended."""

    order: Order
    result: JobResult
    attempt: Attempt
    folder: Path
    """With what the process left."""
    log: Path
    seconds: float
    """That the process lasted, without waiting for its turn."""
    beside: frozenset[str] = frozenset()
    """The names of the orders whose processes still ran."""

    @property
    def printed(self) -> str:
        """The first line that the process printed; empty without any."""
        return first_printed(self.log)


class Bench:
    """Starts the processes of a run, or of a check, on this machine."""

    def __init__(self, out: Path, problem: Problem, timeout_s: float, side_by_side: int = 0) -> None:
        """Logs go to the folder `out`; so many stages have room to prepare `side_by_side`."""
        self.logs = out / "logs"
        self.scratch: Path
        """For the data set and what processes leave, while it is open."""
        self.gpu = GpuMonitor()
        self.side_by_side = side_by_side
        self.timeout_s = timeout_s
        self._out, self._parameter_bytes = out, parameter_bytes(problem)
        self.note: Callable[[str], object]
        """Is told of processes that are late."""
        self._servers: dict[int, ForkServers] = {}  # of rounds
        self._held: HeldWorkers | None = None

    @contextmanager
    def opened(self, nbytes: int, note: Callable[[str], object]) -> Iterator[None]:
        """Inside, there is a scratch folder with room for so many bytes, and `note` is told of processes that are late.

        Raises UsageError if there is no room.
        """
        with scratch_folder(self._out, nbytes) as self.scratch:
            self.note = note
            yield

    @contextmanager
    def preparing(self, rounds: Mapping[int, Sequence[StageRun]]) -> Iterator[None]:
        """Inside, workers may prepare side by side, and the libraries of these rounds' stages are imported ahead."""
        with ExitStack() as begun:
            at_once = max(FEWEST, cores_usable() - CORES_FOR_ORACLE)
            held = HeldWorkers(self.side_by_side, self.timeout_s, self.note, at_once)
            self._held = begun.enter_context(closing(held))
            begun.callback(self._forget)
            for round_, stages in rounds.items():
                self._servers[round_] = begun.enter_context(closing(self.imports(round_, stages)))
            yield

    def _forget(self) -> None:
        self._held = None
        self._servers.clear()

    def await_imports(self) -> None:
        """Wait for all libraries."""
        for servers in self._servers.values():
            servers.wait()

    @contextmanager
    def round(self, round_: int, stages: Sequence[StageRun]) -> Iterator[None]:
        """Inside, the libraries of these stages are imported, and the workers of the round are forked from that."""
        with self._servers.get(round_) or self.imports(round_, stages) as servers:
            self._servers[round_] = servers
            yield
        self._servers.pop(round_)

    @property
    def has_room(self) -> bool:
        """Whether there is room for enough stages to prepare side by side."""
        return self.side_by_side >= FEWEST

    def may_hold(self, stage: StageRun) -> bool:
        """Whether a stage may prepare beside others: one of ours on the GPU, whose preparation is known to be quiet."""
        return self.has_room and bool(stage.entry.stage.needs) and stage.entry.is_ours

    @property
    def holds(self) -> bool:
        """Whether workers may prepare side by side now."""
        return self._held is not None and self._held.at_once > 0

    @property
    def is_empty(self) -> bool:
        """Whether no worker prepares or waits; returns once those that were asked for have begun."""
        return not self._held

    def prepare(self, orders: Iterable[Order]) -> None:
        """Let the first workers of these orders prepare side by side, unless some do already."""
        if self._held is not None and self._held.at_once and self.is_empty:
            able = list(islice((order for order in orders if self.may_hold(order.stage)), self._held.at_once))
            self._held.begin([partial(self._started, order) for order in able] if len(able) >= FEWEST else [])

    def await_prepared(self) -> None:
        """Wait until no worker prepares any longer: from now on the caller measures."""
        if self._held is not None:
            self._held.wait()

    def held(self, order: Order) -> HeldWorker:
        """The worker that is prepared for a stage, or one that begins now; the caller closes it."""
        return (self._held and self._held.take(order.stage.name)) or self._started(order)

    def run(self, order: Order) -> Finished:
        """Run the process of an order, or let the one that is prepared for its stage do what it was ordered."""
        name, limit_s = order.stage.name, self.timeout_s
        patience = threading.Timer(limit_s * PATIENCE, self.note, [late(name, limit_s)])
        with _running(patience):
            if self._held and (worker := self._held.take(name)):
                with closing(worker):
                    result = worker.take_turn(limit_s)
                    lasted_s, seeds = worker.lasted_s, worker.seeds
                order = replace(order, job=worker.job)
            else:
                self._folder(order).mkdir()
                began = time.monotonic()
                with self._seeds(order) as seeds:
                    order = _with_seeds(order, seeds)
                    result = self.work(order.job, self._folder(order), self._log(order), self._fork_server(order))
                lasted_s = time.monotonic() - began
        return self._finished(order, seeds, result, lasted_s - result.waited_s)

    def work(self, job: Job, folder: Path, log: Path, fork_server: ForkServer | None) -> JobResult:
        """Do a job in a process."""
        return run_job(job, folder, log, self.timeout_s, fork_server=fork_server)

    @contextmanager
    def together(self, orders: Sequence[Order], at_once: int) -> Iterator[Iterator[Finished]]:
        """Inside, the processes of these orders run side by side; yields each as it ends. None of them is timed."""
        with ExitStack() as serving:
            seeds = {order.name: serving.enter_context(self._seeds(order)) for order in orders}
            due = {order.name: _with_seeds(order, seeds[order.name]) for order in orders}
            jobs = {name: order.job for name, order in due.items()}
            pool = WorkerPool(jobs, at_once, self.scratch, self.logs, self.timeout_s, self.note)
            yield (
                self._finished(due[job.name], seeds[job.name], job.result, job.seconds, job.beside)
                for job in serving.enter_context(pool)
            )

    def compilers(self, orders: Sequence[Order], round_: int) -> Compilers:
        """What compiles side by side: see `Compilers`; its workers are forked from what the round has imported."""
        jobs, by_name = {order.stage.name: order.job for order in orders}, {order.stage.name: order for order in orders}

        def fork_server_of(name: str) -> ForkServer | None:
            return self._servers[round_].for_needs(by_name[name].stage.entry.stage.needs)

        return Compilers(jobs, self.scratch, self.logs, self.timeout_s, self.note, fork_server_of)

    def cpu_limits(self) -> CpuLimits | None:
        """The CPU's limits, measured now; None if that fails."""
        return measure_cpu_limits(self.scratch / "cpu-limits.json", self.logs / "cpu-limits.log", self.timeout_s)

    def gpu_limits(self) -> LimitsRecord | None:
        """The GPU's limits, measured now; None if that fails."""
        return measure_gpu_limits(self.scratch / "limits.json", self.logs / "limits.log", self.timeout_s)

    def imports(self, round_: int, stages: Sequence[StageRun]) -> ForkServers:
        """What begins now to import the libraries of these stages."""
        return ForkServers([stage.entry.stage.needs for stage in stages], self.logs, round_)

    def _fork_server(self, order: Order) -> ForkServer | None:
        servers = self._servers.get(order.job.round)
        return None if servers is None or order.wrap else servers.for_needs(order.stage.entry.stage.needs)

    def _started(self, order: Order) -> HeldWorker:
        """A worker that prepares at once and waits for its turn."""
        places, seeds = (self._folder(order), self._log(order)), self._seeds(order, held=True)
        server = self._fork_server(order)
        return HeldWorker(order.stage.name, order.job, places, seeds, server, order.wrap or list)

    def _seeds(self, order: Order, *, held: bool = False) -> SeedServer:
        return SeedServer(order.seed, self._parameter_bytes, held=held)

    def _folder(self, order: Order) -> Path:
        return self.scratch / order.name

    def _log(self, order: Order) -> Path:
        return self.logs / f"{order.name}.log"

    def _finished(
        self, order: Order, seeds: SeedServer, result: JobResult, seconds: float, beside: frozenset[str] = frozenset()
    ) -> Finished:
        return Finished(order, result, seeds.attempt, self._folder(order), self._log(order), seconds, beside)


def _with_seeds(order: Order, seeds: SeedServer) -> Order:
    return replace(order, job=msgspec.structs.replace(order.job, seeds=seeds.address))


@contextmanager
def _running(timer: threading.Timer) -> Iterator[None]:
    """Run a timer inside the context only."""
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
