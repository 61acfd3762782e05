"""Every way in which a run starts processes; it knows orders and results, and decides nothing."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import replace
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import msgspec

from common.cache import cache_obstacle
from ladder.machine.environment import cores_usable
from ladder.machine.gpu_monitor import GpuMonitor
from ladder.measure.protocol import JobResult
from ladder.processes.fork_servers import ForkServers
from ladder.processes.held_workers import FEWEST, HeldWorker, HeldWorkers
from ladder.processes.seed_server import Attempt, SeedServer
from ladder.processes.worker_pool import Compilers, WorkerPool
from ladder.processes.worker_process import PATIENCE, first_printed, late, run_to_end
from ladder.records.limits_record import LimitsRecord
from ladder.run.folders import scratch_folder
from ladder.run.orders import Order, parameter_bytes
from ladder.run.stage_run import StageRun

CORES_FOR_ORACLE = 4  # where stages prepare beside it


class Finished(NamedTuple):
    """An order whose process has ended."""

    order: Order
    result: JobResult
    attempt: Attempt
    seconds: float
    """That the process lasted, without waiting for its turn."""
    beside: frozenset[str] = frozenset()
    """The names of the orders whose processes still ran."""

    @property
    def printed(self) -> str:
        """The first line that the process printed; empty without any."""
        return first_printed(self.order.log)


class Bench:
    """Starts the processes of a run, or of a check, on this machine."""

    def __init__(self, out: Path, timeout_s: float) -> None:
        """Processes that no order names keep their logs in the folder `out`."""
        self.logs = out / "logs"
        self.scratch: Path
        """For the data set and what processes leave, while it is open."""
        self.side_by_side = 0
        """How many stages have room to prepare at once."""
        self.timeout_s = timeout_s
        self._out = out
        self.note: Callable[[str], object]
        """Receives a line for each process that is late."""
        self._servers: dict[int, ForkServers] = {}  # of rounds
        self._held = HeldWorkers(0, timeout_s)

    @cached_property
    def gpu(self) -> GpuMonitor:
        """The GPU, which a check need not ask."""
        return GpuMonitor()

    @contextmanager
    def opened(self, nbytes: int, note: Callable[[str], object]) -> Iterator[None]:
        """Inside, there is a scratch folder with room for `nbytes` bytes; `note` receives a line for each late process.

        Raises UsageError if there is no room.
        """
        if obstacle := cache_obstacle():
            note(f"{obstacle}; this run keeps compiled code in its temporary folder")
        with scratch_folder(self._out, nbytes) as self.scratch:
            self.note = note
            yield

    @contextmanager
    def preparing(self) -> Iterator[Callable[[int, Sequence[StageRun]], None]]:
        """Inside, workers may prepare side by side; yields what begins to import the libraries of a round's stages."""
        with ExitStack() as begun:
            self._held = HeldWorkers(self.side_by_side, self.timeout_s, self.note, self._preparing_at_once)
            begun.enter_context(closing(self._held))
            begun.callback(self._servers.clear)

            def import_ahead(round_: int, stages: Sequence[StageRun]) -> None:
                self._servers[round_] = begun.enter_context(closing(self.imports(round_, stages)))

            yield import_ahead
        self._held = HeldWorkers(0, self.timeout_s)

    @property
    def _preparing_at_once(self) -> int:
        return max(FEWEST, cores_usable() - CORES_FOR_ORACLE)

    def await_imports(self) -> None:
        """Wait for all libraries."""
        for servers in self._servers.values():
            servers.wait()

    def first_alone(self, order: Order) -> AbstractContextManager[None]:
        """Inside, only what this order needs is imported: the rest goes on afterwards."""
        return self._servers[order.job.round].stopped_but_for(order.stage.entry.stage.needs)

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

    def is_crowded_by(self, stages: Sequence[StageRun]) -> bool:
        """Whether there is room for these to prepare side by side, and more of them than cores for that."""
        return self.has_room and sum(map(self.may_hold, stages)) > self._preparing_at_once

    def may_hold(self, stage: StageRun) -> bool:
        """Whether a stage may prepare beside others: one of ours on the GPU, whose preparation is known to be quiet."""
        return self.has_room and bool(stage.entry.stage.needs) and stage.entry.is_ours

    @property
    def holds(self) -> bool:
        """Whether workers may prepare side by side now."""
        return self._held.at_once > 0

    @property
    def is_empty(self) -> bool:
        """Whether no worker prepares or waits; returns once those that were asked for have begun."""
        return len(self._held) == 0

    def prepare(self, orders: Iterable[Order]) -> None:
        """Let the first workers of these orders prepare side by side, unless some do already."""
        if self.holds and self.is_empty:
            able = list(islice((order for order in orders if self.may_hold(order.stage)), self._held.at_once))
            self._held.begin([partial(self.start, order, held=True) for order in able] if len(able) >= FEWEST else [])

    def prepare_one(self, order: Order) -> None:
        """Let the first worker of this order prepare, by itself."""
        if self.may_hold(order.stage):
            self._held.begin([partial(self.start, order, held=True)])

    def await_prepared(self) -> None:
        """Wait until no worker prepares any longer: from now on the caller measures."""
        self._held.wait()

    def take(self, order: Order) -> HeldWorker | None:
        """The worker that is prepared for a stage; the caller closes it. None if there is none."""
        return self._held.take(order.stage.name)

    def start(self, order: Order, *, held: bool) -> HeldWorker:
        """A worker that begins now; one that is `held` prepares and then waits for its turn. The caller closes it."""
        servers, name, seeds = self._servers.get(order.job.round), order.stage.name, self._seeds(order, held=held)
        server = servers.for_needs(order.stage.entry.stage.needs) if servers else None
        return HeldWorker(name, order.job, (order.folder, order.log), seeds, server, order.wrap or list)

    def run(self, order: Order) -> Finished:
        """Run the process of an order, or let the one that is prepared for its stage do what it was ordered."""
        patience = threading.Timer(self.timeout_s * PATIENCE, self.note, [late(order.stage.name, self.timeout_s)])
        patience.daemon = True
        with ExitStack() as running:
            running.callback(patience.cancel)
            patience.start()
            worker = running.enter_context(closing(self.take(order) or self.start(order, held=False)))
            result = worker.take_turn(self.timeout_s)
            seconds = worker.lasted_s - result.waited_s
        return Finished(replace(order, job=worker.job), result, worker.seeds.attempt, seconds)

    @contextmanager
    def together(self, orders: Sequence[Order], at_once: int) -> Iterator[Iterator[Finished]]:
        """Inside, the processes of these orders run side by side; yields each as it ends. None of them is timed."""
        with ExitStack() as serving:
            due = {order.name: order for order in orders}
            seeds = {name: serving.enter_context(self._seeds(order)) for name, order in due.items()}
            jobs = {name: msgspec.structs.replace(due[name].job, seeds=seeds[name].address) for name in due}
            pool = WorkerPool(jobs, at_once, self.scratch, self.logs, self.timeout_s, self.note)
            yield (
                Finished(due[job.name], job.result, seeds[job.name].attempt, job.seconds, job.beside)
                for job in serving.enter_context(pool)
            )

    def compilers(self, orders: Sequence[Order], round_: int, fewest: int = 2) -> Compilers:
        """What compiles side by side: see `Compilers`; its workers are forked from what the round has imported."""
        jobs = {order.stage.name: order.job for order in orders}
        needs = {order.stage.name: order.stage.entry.stage.needs for order in orders}
        places = self.scratch, self.logs, self.timeout_s, self.note
        return Compilers(jobs, *places, lambda name: self._servers[round_].for_needs(needs[name]), fewest)

    def gpu_limits(self) -> LimitsRecord | None:
        """The GPU's limits, measured now; None if that fails, for the reason in the log."""
        record, log = self.scratch / "limits.json", self.logs / "limits.log"
        command = [sys.executable, "-m", "ladder.machine.limits", str(record)]
        try:
            run_to_end(command, record.with_suffix(".ending"), log, self.timeout_s)
            return msgspec.json.decode(record.read_bytes(), type=LimitsRecord)
        except (subprocess.TimeoutExpired, OSError, ValueError, msgspec.DecodeError):
            return None

    def imports(self, round_: int, stages: Sequence[StageRun]) -> ForkServers:
        """What begins now to import the libraries of these stages."""
        return ForkServers([stage.entry.stage.needs for stage in stages], self.logs, round_)

    def _seeds(self, order: Order, *, held: bool = False) -> SeedServer:
        return SeedServer(order.number, parameter_bytes(order.job.problem), held=held)
