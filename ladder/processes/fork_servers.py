"""The fork servers of a round, as the harness sees them: which stage uses which, and how it asks for a process."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Self

import msgspec

from common.process_group import kill_group

ROOT = Path(__file__).parents[2]
IMPORTS_S = 120.0  # the longest that a fork server may take before it answers
REAPING_S = 10.0  # for what it does by itself: forking, and telling of a child that was killed


def family(needs: Iterable[str]) -> str | None:
    """Which fork server stages with these needs share; None for JAX, whose threads do not survive a fork."""
    known = set(needs)
    if "jax" in known:
        return None
    if any(need.startswith("torch") for need in known):
        return "torch"
    return "cuda" if known else "numpy"


class ForkServer:
    """A process that has imported what some stages need, and forks one for every job."""

    def __init__(self, needs: Iterable[str], log: Path) -> None:
        log.parent.mkdir(exist_ok=True)
        with log.open("wb") as file:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "ladder.processes.fork_server", *needs],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                start_new_session=True,
            )
        self._ready = False

    def wait(self) -> None:
        """Until it has imported everything; one that does not come to that is closed."""
        if not self._ready:
            self._ready = True
            try:
                if self._answer(IMPORTS_S) is None:
                    self.close()
            except (OSError, ValueError, subprocess.TimeoutExpired):
                self.close()

    def run(self, folder: Path, log: Path, timeout_s: float) -> int | None:
        """The exit code of a worker on the job in the folder; None where the fork server itself has ended.

        Raises subprocess.TimeoutExpired where the worker does not end; it is killed, and whatever it started.
        """
        self.wait()
        request = {"folder": str(folder), "log": str(log)}
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(msgspec.json.encode(request) + b"\n")
            self._process.stdin.flush()
            child = self._answer(REAPING_S)
        except (OSError, ValueError, subprocess.TimeoutExpired):  # it has died, was closed, or does not come to an end
            self.close()
            return None
        if child is None:
            return None
        try:
            return self._answer(timeout_s)
        except subprocess.TimeoutExpired:
            kill_group(child)
            self._answer(REAPING_S)
            raise
        finally:
            kill_group(child)

    def close(self) -> None:
        """End it; it may have been ended before."""
        if self._process.returncode is None:
            kill_group(self._process.pid)
        with suppress(OSError, ValueError):  # what could not be written any more
            self._process.communicate()

    def _answer(self, timeout_s: float) -> int | None:
        """The next number that it says; None at its end, subprocess.TimeoutExpired where there is none in time."""
        assert self._process.stdout is not None
        deadline = time.monotonic() + timeout_s
        said = b""
        while not said.endswith(b"\n"):
            left = max(0.0, deadline - time.monotonic())
            ready, _, _ = select.select([self._process.stdout], [], [], left)
            if not ready:
                raise subprocess.TimeoutExpired("ladder.processes.fork_server", timeout_s)
            letter = os.read(self._process.stdout.fileno(), 1)  # one by one, since two answers may come together
            if not letter:
                return None
            said += letter
        return int(said)


class ForkServers:
    """Those of one round, all begun at once.

    As a context manager it waits until they are ready, so that nothing is measured while they import.
    """

    def __init__(self, stages: Iterable[tuple[str, ...]], logs: Path, round_: int) -> None:
        shared: dict[str, set[str]] = {}
        for needs in stages:
            if (name := family(needs)) is not None:
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
        """Until all of them are ready."""
        for fork_server in self._open.values():
            fork_server.wait()

    def close(self) -> None:
        """End them all."""
        for fork_server in self._open.values():
            fork_server.close()

    def of(self, needs: tuple[str, ...]) -> ForkServer | None:
        """The one for a stage with these needs; None for a stage whose process is started by itself."""
        return self._open.get(family(needs) or "")
