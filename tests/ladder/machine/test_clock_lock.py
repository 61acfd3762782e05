"""Real processes lock and reset clocks, however they end; the NVML that they call is a fake that logs to a file."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ladder.records.run import load
from reports.screens.details import details
from run_ladder import main
from tests.common.data.idx_writer import quartet_arrays, write_files
from tests.streams import wait_until

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[3]
# `sitecustomize.py`, which every Python process imports: one GPU, and an NVML that logs each setting.
SITE = """
import os, sys
from common.cuda import driver
from tests.ladder.gpus import H200, FakeNvml


class Logging(FakeNvml):
    def nvmlDeviceSetGpuLockedClocks(self, handle, least, most):
        self.write(f"lock {least} {most}")

    def nvmlDeviceResetGpuLockedClocks(self, handle):
        self.write("reset")

    def write(self, text):
        with open(os.environ["NVML_LOG"], "a") as file:
            file.write(f"{os.getpid()} {text}\\n")


if os.environ.get("NVML_GPU") != "none":
    driver.devices = lambda: [H200]
refused = frozenset(os.environ.get("NVML_REFUSES", "").split())
sys.modules["pynvml"] = Logging(H200.pci_bus_id, refused=refused)
"""
HOLD = """
import signal, sys, time
from ladder.machine.clock_lock import locked_clocks

if __name__ == "__main__":
    for handled in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # as run_ladder.py has it
        signal.signal(handled, signal.default_int_handler)
    with locked_clocks(1500, print):
        print("begun", flush=True)
        time.sleep(float(sys.argv[1]))
"""
RUN = [
    "--batch-size=20", "--epochs=2", "--rounds=1", "--repeats=3", "--budget=1", "--remeasure=0", "--profile=none",
    "--out=run",
]  # fmt: skip
Hold = Callable[..., subprocess.Popen[str]]
LOCK, RESET = "lock 1500 1500", "reset"


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty current folder, and the fake GPU for every process that starts."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(SITE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path / 'site'}:{ROOT}")
    monkeypatch.setenv("NVML_LOG", str(tmp_path / "nvml.log"))


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small dataset that a run finds through `$LADDER_DATA_DIR`."""
    data = write_files(tmp_path / "data", quartet_arrays(400, 50, (6, 6), 4))
    monkeypatch.setenv("LADDER_DATA_DIR", str(data))


@pytest.fixture
def hold() -> Iterator[Hold]:
    """Starts a program that locks the clocks for some seconds in its own process group, and waits for the lock."""
    begun: list[subprocess.Popen[str]] = []

    def start(seconds: float) -> subprocess.Popen[str]:
        program = subprocess.Popen(
            [sys.executable, "-c", HOLD, str(seconds)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        begun.append(program)
        assert program.stdout is not None
        assert program.stdout.readline() == "begun\n"
        return program

    yield start
    for program in begun:
        program.kill()
        program.communicate()


def log(tmp_path: Path) -> list[list[str]]:
    """The process id and the setting of each logged call."""
    path = tmp_path / "nvml.log"
    return [line.split(maxsplit=1) for line in path.read_text().splitlines()] if path.exists() else []


def asked(tmp_path: Path) -> list[str]:
    return [what for _, what in log(tmp_path)]


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGKILL])
def test_clocks_are_reset_however_the_program_ends(hold: Hold, tmp_path: Path, sent: signal.Signals) -> None:
    program = hold(60)
    assert asked(tmp_path) == [LOCK]
    os.killpg(program.pid, sent)
    program.communicate(timeout=60)
    wait_until(lambda: asked(tmp_path) == [LOCK, RESET])


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGKILL])
def test_a_guard_ignores_sigterm_and_a_killed_one_is_replaced(hold: Hold, tmp_path: Path, sent: signal.Signals) -> None:
    program = hold(1)
    guard = int(log(tmp_path)[0][0])
    assert os.getsid(guard) == guard
    os.kill(guard, sent)
    assert program.communicate(timeout=60) == ("", "")
    assert asked(tmp_path) == [LOCK, RESET]
    assert (int(log(tmp_path)[1][0]) == guard) == (sent == signal.SIGTERM)


def test_a_failed_reset_is_reported_with_the_way_out(hold: Hold, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NVML_REFUSES", "nvmlDeviceResetGpuLockedClocks")
    out, _ = hold(0).communicate(timeout=60)
    assert "may still be locked" in out
    assert "nvidia-smi --reset-gpu-clocks" in out


@pytest.mark.usefixtures("data")
def test_results_record_the_locked_clock_for_resuming(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--stages=numpy", "--lock-clocks=1500", *RUN]) == 0
    assert asked(tmp_path) == [LOCK, RESET] * 2  # once as a check before the folder is made, once for the run
    assert load(tmp_path / "run").settings.lock_clocks_mhz == 1500
    assert "locked at 1,500 MHz" in str(details(load(tmp_path / "run")))
    assert main(["--resume=run"]) == 0
    assert asked(tmp_path) == [LOCK, RESET] * 3
    assert main(["--resume=run", "--lock-clocks=1485"]) == 2
    assert "a resumed run keeps its settings" in capsys.readouterr().err


@pytest.mark.usefixtures("data")
@pytest.mark.parametrize(
    ("mhz", "variables", "said"),
    [
        ("1500", {"NVML_GPU": "none"}, "--lock-clocks 1500: no "),
        (
            "1500",
            {"NVML_REFUSES": "nvmlDeviceSetGpuLockedClocks"},
            "--lock-clocks 1500: setting clocks takes an administrator's permission (Insufficient Permissions); leave",
        ),
        ("5000", {}, "--lock-clocks 5000: this GPU has clocks from 345 to 1980 MHz, the nearest is 1980"),
        ("0", {}, "--lock-clocks 0: must be a whole number of MHz, such as 1500"),
    ],
)
def test_an_unlockable_clock_is_refused_in_one_line_before_any_folder_is_made(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    mhz: str,
    variables: dict[str, str],
    said: str,
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert main([f"--lock-clocks={mhz}", *RUN]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"run_ladder.py: {said}")
    assert err.count("\n") == 1
    assert asked(tmp_path) == []
    assert not (tmp_path / "run").exists()


@pytest.mark.usefixtures("data")
def test_a_study_with_unlockable_clocks_is_refused_before_its_first_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NVML_REFUSES", "nvmlDeviceSetGpuLockedClocks")
    (tmp_path / "plan.toml").write_text('stages = ["numpy"]\nlock_clocks = 1500\n[vary]\nseed = [1, 2]\n')
    assert main(["study", "plan.toml", "--out=run"]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert not (tmp_path / "run").exists()
