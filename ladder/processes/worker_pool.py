"""Workers side by side, for jobs that are not timed: compiling ahead, and runs that only verify."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple, Self

from ladder.machine.environment import cores_usable
from ladder.measure.protocol import Job, JobResult
from ladder.processes.fork_servers import ForkServer
from ladder.processes.worker_process import PATIENCE, WorkerProcess, late, launch, leave_job, result_of

CORES_EACH = 2  # a compiler starts processes of its own
POLL_S = 0.02


class FinishedJob(NamedTuple):
    """A job whose worker has ended."""

    name: str
    folder: Path
    result: JobResult
    seconds: float
    beside: frozenset[str] = frozenset()  # the jobs whose workers still ran


class _Running(NamedTuple):
    name: str
    process: WorkerProcess
    folder: Path
    started: float


class WorkerPool:
    """Runs each job in a worker of its own, at most `at_once` at a time, in `folder/NAME` with `logs/NAME.log`.

    Entering the context starts the first workers; iterating yields jobs as they finish; leaving kills the rest.
    """

    def __init__(
        self,
        jobs: Mapping[str, Job],
        at_once: int,
        folder: Path,
        logs: Path,
        timeout_s: float,
        note: Callable[[str], object] = lambda _: None,
        fork_server_of: Callable[[str], ForkServer | None] = lambda _: None,
    ) -> None:
        """`note` receives a line for each worker that takes long, while somebody waits for it.

        `fork_server_of` gives the fork server of the job of this name; without one its worker is started.
        """
        self._fork_server_of = fork_server_of
        self._waiting, self._at_once = dict(jobs), at_once
        self._note, self._late = note, set[str]()
        self._folder, self._logs, self._timeout_s = folder, logs, timeout_s
        self._running: list[_Running] = []

    def __enter__(self) -> Self:
        try:
            self._start_workers()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[FinishedJob]:
        """Each job as its worker ends or exceeds the time limit.

        Workers are polled only while the caller waits for the next job, so `seconds` may include the caller's time.
        """
        while self._running:
            for running in list(self._running):
                took_s = time.monotonic() - running.started
                if took_s > self._timeout_s * PATIENCE and running.name not in self._late:
                    self._late.add(running.name)
                    self._note(late(running.name, self._timeout_s))
                if running.process.has_ended() or took_s > self._timeout_s:
                    finished = self._finish(running)
                    self._start_workers()
                    yield finished
            time.sleep(POLL_S)

    def close(self) -> None:
        """Kill all workers and drop the waiting jobs."""
        self._waiting.clear()
        for running in self._running:
            running.process.end()
        self._running.clear()

    def _start_workers(self) -> None:
        """Start waiting jobs until `at_once` workers run."""
        for name in list(self._waiting)[: self._at_once - len(self._running)]:
            folder, log = self._folder / name, self._logs / f"{name}.log"
            folder.mkdir()
            job = self._waiting.pop(name)
            leave_job(job, folder)
            # For the libraries whose threads threadpoolctl does not reach, such as PyTorch's.
            threads = {"OMP_NUM_THREADS": str(job.blas_threads)} if job.blas_threads else {}
            process = launch(folder, log, self._fork_server_of(name), threads)
            self._running.append(_Running(name, process, folder, time.monotonic()))

    def _finish(self, running: _Running) -> FinishedJob:
        result = result_of(lambda: running.process.wait(0), running.folder, self._timeout_s)
        running.process.end()
        self._running.remove(running)
        beside = frozenset(job.name for job in self._running)
        return FinishedJob(running.name, running.folder, result, time.monotonic() - running.started, beside)


class Compilers(WorkerPool):
    """A worker for each job, given by stage name, as many at once as the cores allow.

    A compiler takes longer than the measurement of its stage, mostly on one core; its code stays on disk for workers.
    Code that is selected by timing must not be compiled beside other processes: see `Stage.compiles_within`.

    If fewer could run at a time than `fewest`, no job runs: beside nothing else, one gains no time over its stage's
    first process.
    """

    def __init__(
        self,
        jobs: Mapping[str, Job],
        folder: Path,
        logs: Path,
        timeout_s: float,
        note: Callable[[str], object] = lambda _: None,
        fork_server_of: Callable[[str], ForkServer | None] = lambda _: None,
        fewest: int = 2,
    ) -> None:
        """`fork_server_of` gives the fork server of the stage of this name."""
        at_once = cores_usable() // CORES_EACH
        self._stages = {f"{name}.compiling": name for name in jobs if min(len(jobs), at_once) >= fewest}
        by_log = {log: jobs[name] for log, name in self._stages.items()}
        super().__init__(by_log, at_once, folder, logs, timeout_s, note, lambda log: fork_server_of(self._stages[log]))
        self.names = list(self._stages.values())

    def wait(self) -> dict[str, float]:
        """Wait for all jobs; returns the seconds that each stage's preparation took, by stage name.

        The time is 0 if the job failed or did not compile the timed trainer: the stage then compiles when measured.
        """
        return {
            self._stages[job.name]: (job.result.compiled_s or 0.0) if job.result.error is None else 0.0 for job in self
        }
