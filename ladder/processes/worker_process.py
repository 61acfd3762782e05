"""Runs a job in a worker process until it ends, crashes or exceeds its time limit, and reads its result."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from common.files import atomic_write
from common.process_group import kill_group
from common.streams import printable
from ladder.measure.protocol import ENDING, JOB, NO_ROOM_CODE, RESULT, Job, JobResult, decoded, no_room
from ladder.processes.fork_servers import ForkedWorker, ForkServer, ForkServerLostError
from ladder.processes.supervised import read_ending
from ladder.profile import cupti

ROOT = Path(__file__).parents[2]
END_LIMIT_S = 10.0  # for a keeper to end what its command left behind
PATIENCE = 0.2  # of the time limit: a stage that takes longer is said to be late
OUTPUT_READ = 1 << 12  # bytes of a log, in which a line of text begins
Wrap = Callable[[Sequence[str]], list[str]]
"""Turns a worker's command into the command that runs it under a profiler."""


class StartedWorker:
    """A command below a keeper, which writes to `ending` what the command left behind; its output goes to the log."""

    def __init__(
        self, command: Sequence[str], ending: Path, log: Path, variables: Mapping[str, str] | None = None
    ) -> None:
        """`variables` are added to its environment."""
        log.parent.mkdir(exist_ok=True)
        keeper = [sys.executable, "-m", "ladder.processes.supervised", str(os.getpid()), str(ending)]
        with log.open("wb") as file:
            self._process = subprocess.Popen(
                [*keeper, *command],
                cwd=ROOT,
                env={**os.environ, **(variables or {})},
                stdout=file,
                stderr=file,
                start_new_session=True,
            )

    def wait(self, timeout_s: float) -> int:
        """Its exit code; raises subprocess.TimeoutExpired."""
        return self._process.wait(timeout_s)

    @property
    def id(self) -> int:
        """The id of the keeper, below which the command runs."""
        return self._process.pid

    def has_ended(self) -> bool:
        """Whether it has ended."""
        return self._process.poll() is not None

    def end(self) -> None:
        """End the keeper with all that its command started: it has ended, is late, or the user interrupts the run."""
        self._process.terminate()
        try:
            self._process.wait(END_LIMIT_S)
        except subprocess.TimeoutExpired:
            kill_group(self._process.pid)
            self._process.wait()


WorkerProcess = ForkedWorker | StartedWorker
"""A worker that runs."""


def launch(
    folder: Path,
    log: Path,
    fork_server: ForkServer | None = None,
    variables: Mapping[str, str] | None = None,
    wrap: Wrap = list,
) -> WorkerProcess:
    """A worker that does the job in the folder: forked from the fork server, or started where that is not possible.

    `variables` are added to the environment of a started one, and `wrap` to its command.
    """
    try:
        forked = fork_server.start(folder, log) if fork_server is not None else None
    except ForkServerLostError:
        forked = None
    return forked or StartedWorker(wrap(worker_command(folder)), folder / ENDING, log, variables)


def leave_job(job: Job, folder: Path) -> None:
    """Leave a job in the folder, and nothing of an earlier one."""
    atomic_write(folder / JOB, msgspec.json.encode(job))
    _forget(folder)


def finish_job(worker: WorkerProcess, folder: Path, log: Path, timeout_s: float, *, is_late: bool = False) -> JobResult:
    """The result of the job in this folder, which this worker does; one that `is_late` counts as hung.

    If a forked worker fails, the state inherited from its fork server may be the cause: the fork server retires, and a
    newly started worker repeats the job, with the first one's log beside its own. A failure of that worker becomes the
    result's `error`. A job that hangs is not repeated: that would take the time limit once more. Nor is one that lost
    another rank, which no fork server forked.
    """

    def code_of(worker: WorkerProcess) -> int:
        try:
            return worker.wait(timeout_s)
        finally:
            worker.end()

    result = result_of(lambda: code_of(worker), folder, timeout_s, is_late=is_late)
    failure = result.error or (result.unprofiled if cupti.available() else "")
    if not failure or result.lost_rank or isinstance(worker, StartedWorker):
        return result
    worker.server.retire()
    if result.hung:
        return result
    log.replace(log.with_suffix(".first.log"))
    _forget(folder)
    again = launch(folder, log)
    return msgspec.structs.replace(result_of(lambda: code_of(again), folder, timeout_s), retried=failure)


def late(name: str, timeout_s: float) -> str:
    """What is said of a worker that has taken that part of its time."""
    return f"{name}: no answer for {timeout_s * PATIENCE:g} s; it is ended after {timeout_s:g} s (--timeout)"


def first_printed(log: Path) -> str:
    """The first line that a worker printed, as plain text of at most 100 letters; empty if it printed nothing."""
    try:
        with log.open("rb") as file:
            text = file.read(OUTPUT_READ).decode(errors="replace").strip()
    except OSError:
        return ""
    return printable(text.split("\n", 1)[0]).strip()[:100]


def _forget(folder: Path) -> None:
    """Remove an earlier worker's result: it must not pass for the next one's."""
    for name in (RESULT, ENDING):
        (folder / name).unlink(missing_ok=True)


def worker_command(folder: Path) -> list[str]:
    """The command of a worker that runs the job in the folder."""
    return [sys.executable, "-m", "ladder.measure.worker", str(folder)]


def result_of(run: Callable[[], int], folder: Path, timeout_s: float, *, is_late: bool = False) -> JobResult:
    """The result that a worker left in the folder, or one whose `error` says how the worker ended.

    `run` returns the worker's exit code.
    """
    failure, code, hung = None, None, False
    try:
        if is_late:
            raise subprocess.TimeoutExpired(str(folder), timeout_s)
        code = run()
        if code < 0:
            failure = f"killed by {signal.Signals(-code).name}"
    except subprocess.TimeoutExpired:
        failure, hung = f"no answer within {timeout_s:g} s (--timeout)", True
    except ForkServerLostError as error:
        failure = str(error)
    result, ending = _left_in(folder, failure, code), read_ending(folder / ENDING)
    return msgspec.structs.replace(result, left=ending.left, stopped_s=ending.stopped_s, hung=hung)


def _left_in(folder: Path, failure: str | None, code: int | None) -> JobResult:
    """The result in the folder; one with an `error` if there is none, or if its worker failed after writing it."""
    try:
        result = decoded((folder / RESULT).read_bytes())
    except OSError:
        if code == NO_ROOM_CODE:
            return JobResult(error=no_room(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder / RESULT))))
        return JobResult(error=failure or f"exit code {code} and no result")
    except (ValueError, msgspec.DecodeError) as error:
        return JobResult(error=failure or f"its result cannot be read: {error}")
    if result.profiling:  # the timed runs were complete: only the profiler failed
        return msgspec.structs.replace(result, unprofiled=f"CUPTI: {failure or f'exit code {code}'}")
    if result.closing:
        return JobResult(error=f"{failure or f'exit code {code}'} while closing")
    if not failure and code and result.error is None:
        failure = f"exit code {code} after its result"
    return JobResult(error=failure) if failure else result


def run_to_end(command: Sequence[str], ending: Path, log: Path, timeout_s: float) -> int:
    """The exit code of a command, with all that it started ended; raises subprocess.TimeoutExpired."""
    worker = StartedWorker(command, ending, log)
    try:
        return worker.wait(timeout_s)
    finally:
        worker.end()
