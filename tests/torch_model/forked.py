"""Workers that are forked from a server with PyTorch in it: each that is started loads it, for 4 s of a core."""

from __future__ import annotations

import multiprocessing
import os
import runpy
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from ladder.processes.worker_process import ROOT

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["torch._dynamo", "ladder.torch_model.worker", "ladder.torch_model.plan"])


class ForkedWorker:
    """As a StartedWorker, without a keeper."""

    def __init__(
        self, command: Sequence[str], ending: Path, log: Path, variables: Mapping[str, str] | None = None
    ) -> None:
        log.parent.mkdir(exist_ok=True)
        self._process = FORKS.Process(target=run_module, args=(command[2:], log, variables or {}))
        self._process.start()

    @property
    def id(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def wait(self, timeout_s: float) -> int:
        self._process.join(timeout_s)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired("", timeout_s)
        return self._process.exitcode

    def has_ended(self) -> bool:
        return not self._process.is_alive()

    def end(self) -> None:
        self._process.terminate()
        self._process.join()


def run_module(command: Sequence[str], log: Path, variables: Mapping[str, str]) -> None:
    """Run `python -m` with these words, its output in the log."""
    with log.open("wb") as output:
        for stream in (1, 2):
            os.dup2(output.fileno(), stream)
    os.chdir(ROOT)
    os.environ.update(variables)
    sys.argv = list(command)
    sys.modules.pop(command[0], None)  # or it would be warned of
    runpy.run_module(command[0], run_name="__main__", alter_sys=True)
