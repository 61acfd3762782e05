"""Ctrl-C and SIGKILL halfway through a run: recorded results are whole, and `--resume` measures the rest."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from ladder.records.run import load
from tests.common.data.idx_writer import quartet_arrays, write_files
from tests.seeds import SEED
from tests.streams import is_running, read_until, wait_until

ROOT = Path(__file__).parent.parent

SMALL = ["--batch-size=20", "--epochs=2", "--rounds=1", "--repeats=3", "--budget=1", "--remeasure=0"]
# The second stage sleeps for a second or more, which leaves time to send a signal.
PROGRAM = """
import sys
import run_ladder
from ladder.run import entries
from stages.registry import load_all

entries.load_all = lambda: load_all(["stages.references.numpy_cpu:STAGE", "tests.planted:SLOW"])
if __name__ == "__main__":
    sys.exit(run_ladder.main(sys.argv[1:]))
"""
Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start the ladder in a process group of its own, as a shell does, with the current folder in `tmp_path`."""
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    data = write_files(tmp_path / "data", quartet_arrays(400, 50, (6, 6), 4))
    environment = {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", "LADDER_DATA_DIR": str(data)}
    begun: list[subprocess.Popen[str]] = []

    def run(*argv: str) -> subprocess.Popen[str]:
        program = subprocess.Popen(
            [sys.executable, str(script), *argv],
            cwd=tmp_path,
            env={**os.environ, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        begun.append(program)
        return program

    yield run
    for program in begun:
        program.kill()
        program.communicate()


def open_when_read(fifo: Path) -> int:
    """Open a pipe for writing as soon as a process reads it; OSError after a minute without one."""
    deadline = time.monotonic() + 60
    while True:
        try:
            return os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)])
def test_an_interrupted_run_can_be_resumed(start: Start, tmp_path: Path, sent: signal.Signals, code: int) -> None:
    program = start(*SMALL, "--out", "a run")
    assert program.stdout is not None
    read_until(program.stdout, "[2/2] slow")
    os.killpg(program.pid, sent)  # as Ctrl-C goes to the whole group
    out, err = program.communicate(timeout=60)
    assert program.returncode == code
    assert err == ""
    assert (tmp_path / "a run" / "report.md").exists() == (sent == signal.SIGINT)
    if sent == signal.SIGINT:
        assert any(line.startswith("numpy ") for line in out.splitlines())  # the table of what there is
        assert (
            out.splitlines()[-1]
            == f"interrupted; continue with: {sys.executable} {ROOT / 'run_ladder.py'} --resume 'a run'"
        )

    half = load(tmp_path / "a run")
    assert [stage.status for stage in half.stages] == ["passed", "skipped"]
    assert half.stages[1].reason == "not measured yet; continue with --resume"

    program = start("--resume", "a run")
    out, err = program.communicate(timeout=120)
    assert (program.returncode, err) == (0, "")
    whole = load(tmp_path / "a run")
    assert [stage.status for stage in whole.stages] == ["passed", "passed"]
    assert whole.stages[0] == half.stages[0]
    assert (tmp_path / "a run" / "report.md").exists()


def test_ctrl_c_at_any_moment_leaves_whole_results_and_at_most_one_line(tmp_path: Path) -> None:
    data = write_files(tmp_path / "data", quartet_arrays(400, 50, (6, 6), 4))
    environment = {**os.environ, "LADDER_DATA_DIR": str(data)}

    def run(folder: str, seconds: float) -> tuple[int, str, float]:
        """The exit code, stderr and duration of a run that gets Ctrl-C after so many seconds."""
        begin = time.monotonic()
        command = [sys.executable, str(ROOT / "run_ladder.py"), "--stages=numpy", *SMALL, "--out", folder]
        program = subprocess.Popen(
            command, cwd=tmp_path, env=environment, text=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            start_new_session=True,
        )  # fmt: skip
        try:
            _, err = program.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(program.pid, signal.SIGINT)
            _, err = program.communicate(timeout=60)
        return program.returncode, err, time.monotonic() - begin

    code, err, whole_s = run("whole", 120)
    assert (code, err) == (0, "")
    for moment in Random(SEED).sample(range(20, 100), 2):
        code, err, _ = run(f"cut-{moment}", whole_s * moment / 100)
        told = f"{moment} % of the way"
        assert code in (0, 130, -signal.SIGINT), told
        assert err in ("", "run_ladder.py: interrupted\n"), told
        if (tmp_path / f"cut-{moment}" / "results.json").exists():
            assert load(tmp_path / f"cut-{moment}").stages[0].name == "numpy", told


LOADING = """
import sys
import run_ladder
from pathlib import Path
from ladder.run import preflight

preflight.dataset_of = lambda **_: Path("slow").read_bytes()
if __name__ == "__main__":
    sys.exit(run_ladder.main(sys.argv[1:]))
"""


def test_ctrl_c_before_anything_is_measured_says_one_line(start: Start, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(LOADING)
    fifo = tmp_path / "slow"
    os.mkfifo(fifo)  # reading it blocks
    program = start(*SMALL, "--out", "run")
    writer = open_when_read(fifo)
    ended = threading.Event()

    def press_until_ended() -> None:  # Python handles a signal between two reads only after the next one
        while not ended.wait(1):
            program.send_signal(signal.SIGINT)

    program.send_signal(signal.SIGINT)
    impatience = threading.Thread(target=press_until_ended)
    impatience.start()
    try:
        out, err = program.communicate(timeout=60)
    finally:
        ended.set()
        impatience.join()
    os.close(writer)
    assert (program.returncode, out, err) == (130, "", "run_ladder.py: interrupted\n")
    assert not (tmp_path / "run").exists()


COMPILING = """
import sys
import run_ladder
from ladder.processes import worker_pool
from ladder.run import entries
from stages.registry import load_all

worker_pool.cores_usable = lambda: 4
entries.load_all = lambda: load_all(["tests.planted:COMPILER_HANGS", "tests.planted:COMPILES"])
if __name__ == "__main__":
    sys.exit(run_ladder.main(sys.argv[1:]))
"""


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)])
def test_compilers_end_with_the_run(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sent: signal.Signals, code: int
) -> None:
    monkeypatch.setenv("COMPILED", str(tmp_path))
    (tmp_path / "program.py").write_text(COMPILING)
    program = start(*SMALL, "--out", "run")
    log = tmp_path / "run" / "logs" / "compiler-hangs.compiling.log"
    wait_until(lambda: log.exists() and log.read_text().endswith("\n"))
    compiler = int(log.read_text())
    os.killpg(program.pid, sent)
    program.communicate(timeout=60)
    assert program.returncode == code
    wait_until(lambda: not is_running(compiler))


HANGING = '''
"""Hangs in its first epoch."""
import os, time
from pathlib import Path
from stages import Stage
from stages.references.numpy_cpu import NumpyTrainer


class Hangs(NumpyTrainer):
    def run_epoch(self, epoch):
        Path(__file__).with_suffix(".pid").write_text(f"{os.getpid()}\\n")
        time.sleep(1000)


STAGE = Stage("hangs", "Hangs", "reference", "float32", (), Hangs)
'''


def test_a_check_ends_with_its_stage_and_files(start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "hanging.py").write_text(HANGING)
    (tmp_path / "scratch").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "scratch"))
    program = start("check", "hanging.py", "--batch-size=20")
    told = tmp_path / "hanging.pid"
    wait_until(lambda: told.exists() and told.read_text().endswith("\n"))
    os.killpg(program.pid, signal.SIGINT)
    assert program.communicate(timeout=60) == ("", "run_ladder.py: interrupted\n")
    assert program.returncode == 130
    wait_until(lambda: not is_running(int(told.read_text())))
    assert list((tmp_path / "scratch").iterdir()) == []
