"""The harness's side of fork servers: starts them, assigns stages to them, and requests workers."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

import msgspec

from common.process_group import kill_group

ROOT = Path(__file__).parents[2]
IMPORT_TIMEOUT_S = 120.0  # until a fork server has imported its libraries
ANSWER_TIMEOUT_S = 10.0  # until it answers after forking, or after a worker was killed
PIPE_BYTES = 4096


def import_group(needs: Iterable[str]) -> str | None:
    """The fork server that stages with these needs share; None for JAX, whose threads do not survive a fork."""
    known = set(needs)
    if "jax" in known:
        return None
    if any(need.startswith("torch") for need in known):
        return "torch"
    return "cuda" if known else "numpy"


class ForkServerLostError(Exception):
    """A fork server ended while its worker ran."""

    def __init__(self) -> None:
        super().__init__("its fork server ended while it ran: a stage must leave other processes alone")


class ForkServer:
    """A process that has imported the libraries of some stages and forks a worker for each of their jobs."""

    def __init__(self, needs: Iterable[str], log: Path) -> None:
        log.parent.mkdir(exist_ok=True)
        with log.open("wb") as file:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "ladder.processes.fork_server", str(os.getpid()), *needs],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                start_new_session=True,
            )
        self._ready = self._retired = False
        self._codes: dict[int, int | None] = {}  # of workers that have ended, by their keepers; None for a lost one
        self._line = b""  # the beginning of an answer
        self._answers = threading.Lock()  # stages and compilers are started by two threads, each with its own answer

    def wait(self) -> None:
        """Wait until the imports are done; a fork server that fails is closed."""
        with self._answers:
            if self._ready:
                return
            self._ready = True
            try:
                if self._answer(IMPORT_TIMEOUT_S) is None:
                    self.close()
            except (OSError, ValueError, subprocess.TimeoutExpired):
                self.close()

    def start(self, folder: Path, log: Path) -> ForkedWorker | None:
        """A worker that does the job in the folder; None if there is no fork server.

        Raises ForkServerLostError if the fork server ends meanwhile.
        """
        self.wait()
        if self._retired:
            return None
        request = {"folder": str(folder), "log": str(log)}
        assert self._process.stdin is not None
        try:
            with self._answers:
                self._process.stdin.write(msgspec.json.encode(request) + b"\n")
                self._process.stdin.flush()
                while answer := self._answer(ANSWER_TIMEOUT_S):
                    keeper, what = answer
                    if what == b"started":
                        return ForkedWorker(self, keeper)
        except (OSError, ValueError, subprocess.TimeoutExpired):  # the fork server died, was closed, or hangs
            self.close()
            return None
        raise ForkServerLostError

    def send(self, number: int) -> None:
        """Send the process a signal, unless it has ended."""
        self._process.send_signal(number)

    def retire(self) -> None:
        """Fork no more workers; those that live go on."""
        self._retired = True

    def close(self) -> None:
        """End the process with all its workers; closing twice is harmless."""
        self._retired = True
        if self._process.returncode is None:
            kill_group(self._process.pid)
        with suppress(OSError, ValueError):  # a request that could not be written
            self._process.communicate()

    def code_of(self, keeper: int, timeout_s: float) -> int:
        """The exit code of this keeper's worker; raises subprocess.TimeoutExpired or ForkServerLostError."""
        deadline = time.monotonic() + timeout_s
        try:
            with self._answers:
                while keeper not in self._codes:
                    if self._answer(max(0.0, deadline - time.monotonic())) is None:
                        raise ForkServerLostError
        except ValueError:  # it was closed
            raise ForkServerLostError from None
        if (code := self._codes[keeper]) is None:
            raise ForkServerLostError
        return code

    def _answer(self, timeout_s: float) -> tuple[int, bytes] | None:
        """The next answer: 0 and `ready`, or a keeper and `started`, `lost` or its worker's exit code, which is kept.

        None if the process has ended with all keepers; raises subprocess.TimeoutExpired, and ValueError once closed.
        """
        assert self._process.stdout is not None
        deadline = time.monotonic() + timeout_s
        while b"\n" not in self._line:
            left_s = max(0.0, deadline - time.monotonic())
            ready, _, _ = select.select([self._process.stdout], [], [], left_s)
            if not ready:
                raise subprocess.TimeoutExpired("ladder.processes.fork_server", timeout_s)
            more = os.read(self._process.stdout.fileno(), PIPE_BYTES)
            if not more:
                return None
            self._line += more
        line, _, self._line = self._line.partition(b"\n")
        keeper, _, what = line.rpartition(b" ")
        if what not in (b"ready", b"started"):
            self._codes[int(keeper)] = None if what == b"lost" else int(what)
        return int(keeper or 0), what


class ForkedWorker:
    """A worker below a keeper, both forked from a fork server."""

    def __init__(self, server: ForkServer, keeper: int) -> None:
        self.server, self._keeper = server, keeper

    def wait(self, timeout_s: float) -> int:
        """Its exit code, -N after signal N; raises subprocess.TimeoutExpired or ForkServerLostError."""
        return self.server.code_of(self._keeper, timeout_s)

    def has_ended(self) -> bool:
        """Whether it has ended, or been lost with its fork server."""
        try:
            self.wait(0.0)
        except subprocess.TimeoutExpired:
            return False
        except ForkServerLostError:
            pass
        return True

    def end(self) -> None:
        """End it with all that it started; ending it twice is harmless."""
        if not self.has_ended():
            with suppress(ProcessLookupError):
                os.kill(self._keeper, signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired, ForkServerLostError):
                self.wait(ANSWER_TIMEOUT_S)


class ForkServers:
    """The fork servers of one round, all started at once.

    Entering the context waits until they are ready, so that nothing is measured while they import.
    """

    def __init__(self, stages: Iterable[tuple[str, ...]], logs: Path, round_: int) -> None:
        shared: dict[str, set[str]] = {}
        for needs in stages:
            if (name := import_group(needs)) is not None:
                shared.setdefault(name, set()).update(needs)
        self._open = {
            name: ForkServer(sorted(needs), logs / f"imports-{name}.{round_ + 1}.log") for name, needs in shared.items()
        }

    def __enter__(self) -> Self:
        self.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def wait(self) -> None:
        """Wait until all are ready."""
        for fork_server in self._open.values():
            fork_server.wait()

    @contextmanager
    def stopped_but_for(self, needs: tuple[str, ...]) -> Iterator[None]:
        """Inside, all stand still, whatever they still import, but the one of a stage with these needs."""
        others = [fork_server for name, fork_server in self._open.items() if name != import_group(needs)]
        for fork_server in others:
            fork_server.send(signal.SIGSTOP)
        try:
            yield
        finally:
            for fork_server in others:
                fork_server.send(signal.SIGCONT)

    def close(self) -> None:
        """End all of them."""
        for fork_server in self._open.values():
            fork_server.close()

    def for_needs(self, needs: tuple[str, ...]) -> ForkServer | None:
        """The fork server of a stage with these needs; None if its worker must be started instead."""
        return self._open.get(import_group(needs) or "")
