"""Runs code in a process of its own that may not end: its ranks, or a kernel, may wait for each other."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from common.process_group import kill_group

ROOT = Path(__file__).parents[1]
DUMP_S = 10.0  # at most, for a process to write where its threads are, and end


def assert_runs(code: str, limit_s: float) -> None:
    """Run Python code; AssertionError with what it printed if it fails, and the place of each rank if it is late."""
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, "PYTHONFAULTHANDLER": "1"},  # its ranks inherit it
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    late = ""
    try:
        said, _ = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        late = f"not done after {limit_s:g} s; other ranks, then rank 0:\n"
        os.kill(process.pid, signal.SIGSTOP)  # else it would go on without its ranks
        for one in [*_ranks_in(process.pid), process.pid]:
            os.kill(one, signal.SIGABRT)
            os.kill(one, signal.SIGCONT)
            _await_end(one)
        kill_group(process.pid)
        said, _ = process.communicate()
    assert process.returncode == 0, late + said


def _await_end(process: int) -> None:
    """Wait until a process has ended, whether or not its exit status was taken."""
    until = time.monotonic() + DUMP_S
    while time.monotonic() < until:
        try:
            state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return
        if state == "Z":
            return
        time.sleep(0.01)


def _ranks_in(group: int) -> list[int]:
    """The ranks in this process group, from 1 on."""
    found = []
    for line in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it has just ended
            if b"common.ranks" in line.read_bytes() and os.getpgid(int(line.parent.name)) == group:
                found.append(int(line.parent.name))
    return sorted(found)
