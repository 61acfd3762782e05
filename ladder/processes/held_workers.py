"""Workers that prepare side by side and then take turns: while one is measured, the others only wait.

A worker imports libraries, creates a CUDA context, compiles and captures for a second or more, longer than most stages
are measured. Side by side this takes a fraction of the time. A waiting worker runs nothing, on the GPU or on the host.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import msgspec

from ladder.measure.protocol import Job, JobResult
from ladder.processes.fork_servers import ForkServer
from ladder.processes.seed_server import SeedServer
from ladder.processes.worker_process import PATIENCE, Wrap, finish_job, late, launch, leave_job

POLL_S = 0.01
FEWEST = 4  # side by side; for fewer, waiting for each other gains next to nothing


class HeldWorker:
    """A worker that does a job in a folder; it prepares at once, and waits for its turn."""

    def __init__(
        self, name: str, job: Job, places: tuple[Path, Path], seeds: SeedServer, server: ForkServer | None, wrap: Wrap
    ) -> None:
        """`places` are its folder and its log; `wrap` puts a profiler around a worker that no fork `server` forks.

        `seeds` is a server that holds its worker; its context is entered here, and left by `close`.
        """
        self.name, self.seeds = name, seeds
        self.others = 0
        """Workers that wait with a context on the GPU while this one has its turn."""
        self.job = msgspec.structs.replace(job, seeds=seeds.address)
        self.folder, self._log = places
        self._began, self._is_late = time.monotonic(), False
        seeds.__enter__()
        self.folder.mkdir()
        leave_job(self.job, self.folder)
        self._process = launch(*places, server, wrap=wrap)

    @property
    def is_prepared(self) -> bool:
        """Whether it waits for its turn, or has ended without asking for one."""
        return self.seeds.waits.is_set() or self.has_ended

    @property
    def has_ended(self) -> bool:
        """Whether it has ended, with whatever is around it."""
        return self._process.has_ended()

    @property
    def lasted_s(self) -> float:
        """The seconds since it was started."""
        return time.monotonic() - self._began

    def take_turn(self, timeout_s: float) -> JobResult:
        """Let it go on, and return its result. If it fails, see `finish_job`."""
        self.seeds.give_turn(self.others)
        return finish_job(self._process, self.folder, self._log, timeout_s, is_late=self._is_late)

    def work_alone(self, timeout_s: float) -> None:
        """Let it go on until it has ended, though a profiler around it may still work; else it counts as hung."""
        self.seeds.give_turn(self.others)
        deadline = time.monotonic() + timeout_s
        while not self.seeds.worker_has_ended and not self.has_ended:
            if time.monotonic() > deadline:
                self.give_up()
            time.sleep(POLL_S)

    def give_up(self) -> None:
        """End one that takes too long, before anything is measured beside it: it counts as hung."""
        self._is_late = True
        self._process.end()

    def close(self) -> None:
        """End it with all that it started; closing twice is harmless."""
        self._process.end()
        self.seeds.__exit__()


class HeldWorkers:
    """The workers that prepare or wait; at most `at_once`, and none if that is less than FEWEST."""

    def __init__(
        self,
        at_once: int,
        timeout_s: float,
        note: Callable[[str], object] = lambda _: None,
        preparing_at_once: int = FEWEST,
    ) -> None:
        """At most `preparing_at_once` do not wait yet; `note` receives a line for each that takes long to prepare."""
        self.at_once = at_once if at_once >= FEWEST else 0
        self._at_a_time = preparing_at_once
        self._timeout_s, self._note = timeout_s, note
        self._workers: dict[str, HeldWorker] = {}
        self._thread = ThreadPoolExecutor(1)
        self._begun: Future[None] | None = None
        self._is_closed = False

    def __len__(self) -> int:
        self._await_begun()
        return len(self._workers)

    def begin(self, makers: Iterable[Callable[[], HeldWorker]]) -> None:
        """Make workers one after the other, in a thread: the first may wait for what its fork server imports."""
        self._begun = self._thread.submit(self._make, makers)

    def _make(self, makers: Iterable[Callable[[], HeldWorker]]) -> None:
        for make in makers:
            while not self._is_closed and sum(not w.is_prepared for w in self._workers.values()) >= self._at_a_time:
                time.sleep(POLL_S)
            if self._is_closed:
                return
            self.add(make())

    def _await_begun(self) -> None:
        """Return when all workers have been made; raises what making them has raised."""
        if self._begun is not None:
            self._begun.result()
            self._begun = None

    def add(self, worker: HeldWorker) -> None:
        """Add a worker that has just been started."""
        self._workers[worker.name] = worker

    def wait(self) -> None:
        """Return when all workers are prepared; those that take longer than the time limit are given up."""
        self._await_begun()
        waiting, told = list(self._workers.values()), False
        while waiting := [worker for worker in waiting if not worker.is_prepared]:
            took_s = max(worker.lasted_s for worker in waiting)
            if took_s > self._timeout_s:
                for worker in waiting:
                    worker.give_up()
            elif took_s > self._timeout_s * PATIENCE and not told:
                told = True
                for worker in waiting:
                    self._note(late(worker.name, self._timeout_s))
            time.sleep(POLL_S)

    def take(self, name: str) -> HeldWorker | None:
        """The worker of this stage, or None; once all are prepared, since from now on the caller measures.

        The caller closes it.
        """
        self.wait()
        if (worker := self._workers.pop(name, None)) is not None:
            worker.others = sum(other.seeds.waits_on_gpu for other in self._workers.values())
        return worker

    def close(self) -> None:
        """End all workers, and only then the thread that started them: Linux would kill their keepers with it."""
        self._is_closed = True
        with self._thread as thread:
            thread.submit(int).result()  # after which it makes no more
            while self._workers:
                self._workers.popitem()[1].close()
