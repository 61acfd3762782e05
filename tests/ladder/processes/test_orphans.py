"""A killed run leaves no process behind, even if it is killed before its processes can ask to end with it."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
RUN = """
import sys
from pathlib import Path
from ladder.processes import fork_servers
from ladder.verify import oracle_runs
from tests.ladder.harness import Watcher, prepare
if __name__ == "__main__":
    if "worker" in sys.argv[2]:
        fork_servers.import_group = lambda needs: None
    oracle_runs.LITTLE_WORK = 0  # so that processes train
    prepare(Path(sys.argv[1]), "tests.planted:HANGS").run(Watcher())
"""
# Every process of the kind under test sleeps before its first line, so that the run is killed before it asks.
SLEEP = """
import os, sys, time
if os.environ["KIND"] in " ".join(sys.orig_argv):
    time.sleep(2)
"""


def processes(mark: str) -> dict[int, str]:
    """The command lines of the running processes that inherited this mark, by their ids."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (folder / "environ").read_bytes():
                found[int(folder.name)] = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:  # it has ended, or is another user's
            continue
    return found


@pytest.mark.parametrize("kind", ["spawn_main", "fork_server", "processes.supervised", "ladder.measure.worker"])
def test_a_run_that_is_killed_while_its_processes_start_leaves_none(kind: str, tmp_path: Path) -> None:
    (tmp_path / "run.py").write_text(RUN)
    (tmp_path / "sitecustomize.py").write_text(SLEEP)
    mark = f"mark-{secrets.token_hex(8)}"
    environment = {**os.environ, "MARK": mark, "KIND": kind, "PYTHONPATH": f"{tmp_path}:{ROOT}"}
    words = [sys.executable, str(tmp_path / "run.py"), str(tmp_path), "fork" if kind == "fork_server" else "worker"]
    run = subprocess.Popen(words, env=environment, start_new_session=True)
    try:
        wait_until(lambda: any(kind in command for pid, command in processes(mark).items() if pid != run.pid))
        run.kill()
        run.wait()
        wait_until(lambda: not processes(mark), 15)
    finally:
        run.kill()
        run.wait()
        for orphan in processes(mark):
            os.kill(orphan, 9)


def wait_until(done: object, limit_s: float = 60) -> None:
    """Wait; the test fails when the time is up."""
    assert callable(done)
    deadline = time.monotonic() + limit_s
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.05)
