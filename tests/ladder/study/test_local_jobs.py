"""A study on several slots of this host: verified as in one process, left and watched again, and refused in a line."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ladder.records.jobs import load_submission
from ladder.records.run import load
from ladder.records.study import load_study
from ladder.study import engines
from run_ladder import main
from tests.ladder.study.jobs import PATIENCE_S, Start, job_of, measuring, verdicts

ROOT = Path(__file__).parents[3]


def test_two_jobs_at_once_verify_the_same_and_say_that_they_share_the_host(four_points: Path) -> None:
    asked = ["study", "four.toml", "--points"]
    assert main([*asked, "hidden-3,hidden-4", "--on", "local", "--parallel", "2", "--out", "out"]) == 0
    assert main([*asked, "hidden-3", "--out", "whole"]) == 0
    (points, judged), (_, alone) = verdicts(Path("out")), verdicts(Path("whole"))
    assert [status for _, status in points] == ["measured", "measured", "waiting", "waiting"]
    assert alone == {"hidden-3": judged["hidden-3"]}
    runs = [load(Path("out") / f"hidden-{width}") for width in (3, 4)]
    assert [run.settings.remeasure for run in runs] == [0, 0]
    told = [reason for run in runs for process in run.stages[0].processes for reason in process.disturbed]
    assert any("other processes kept" in reason for reason in told)
    assert "disturbed" in Path("out/report.md").read_text()


def test_jobs_go_on_after_ctrl_c_and_are_watched_again(four_points: Path, start: Start) -> None:
    watching = start("four.toml", "--on", "local", "--parallel", "2", "--out", "out", "--points", "hidden-3,hidden-4")
    process = job_of("hidden-3", Path("out"))
    os.killpg(watching.pid, signal.SIGINT)  # as a terminal tells its whole group
    out, err = watching.communicate(timeout=PATIENCE_S)
    assert (watching.returncode, err) == (130, "")
    left, way_on = out.splitlines()[-2:]
    assert left == f"detached: the jobs go on, until `kill {process}`"
    assert way_on.endswith("run_ladder.py study --resume out")
    assert main(["study", "--resume", "out", "--points", "hidden-3,hidden-4"]) == 0
    how = load_submission(Path("out"))
    assert how is not None
    assert set(how.jobs.values()) == {process}  # nothing was sent again
    assert [point.status for point in load_study(Path("out")).points[:3]] == ["measured", "measured", "waiting"]


def test_killed_jobs_leave_nothing_running_and_are_sent_again(four_points: Path, start: Start) -> None:
    watching = start("four.toml", "--on", "local", "--out", "out", "--points", "hidden-3")
    process = int(job_of("hidden-3", Path("out")))
    (point,) = measuring("hidden-3", Path("out"))
    queue = int(Path(f"/proc/{point}/stat").read_text().split()[3])
    for one in (process, queue):
        os.kill(one, signal.SIGKILL)
    _, err = watching.communicate(timeout=PATIENCE_S)
    assert "not measured: hidden-3 (its job ended without a word); continue with study --resume out" in err
    deadline = time.monotonic() + PATIENCE_S
    while measuring("hidden-3", Path("out")):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert main(["study", "--resume", "out", "--points", "hidden-3"]) == 0


def test_python_ends_without_a_word_of_submitit_s_jobs() -> None:
    """Something may hold a module, as pytest does; it then lives until Python takes all modules apart."""
    code = (
        "import subprocess, sys; from ladder.study import engines; import submitit\n"
        "sys.held = engines\n"
        "engines._begun_here.append(submitit.LocalJob('jobs', '1', process=subprocess.Popen(['true'])))"
    )
    ended = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert ended.stderr == ""


def test_a_study_of_another_commit_or_host_is_not_continued(
    four_points: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["study", "four.toml", "--on", "local", "--out", "out", "--points", "hidden-3"]) == 0
    with monkeypatch.context() as patch:
        patch.setattr("ladder.machine.environment.git_state", lambda: ("another", False))
        assert main(["study", "--resume", "out"]) == 2
    assert "out: code git_commit another, the study's is " in capsys.readouterr().err
    monkeypatch.setattr("socket.gethostname", lambda: "elsewhere")
    assert main(["study", "--resume", "out"]) == 2
    assert "out: its points are measured on " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--on", "cluster"], "--on cluster: must be local or slurm"),
        (["--parallel", "2"], "--parallel: needs --on local or --on slurm; add one"),
        (["--on", "local", "--parallel", "0"], "--parallel 0: must be a whole number from 1 to"),
        (["--on", "local", "--gpus", "9"], "--parallel 1: with --gpus 9 needs 9 GPUs, this host has 0"),
        (["--on", "local", "--slurm", "time=5"], "--slurm time: needs --on slurm; leave it out on this host"),
        (["--on", "slurm", "--slurm", "partitions=a"], "--slurm partitions=a: there is no such option; did you mean"),
        (["--on", "slurm", "--slurm", "qos"], "--slurm qos: needs a value, such as qos=VALUE"),
        (["--on", "slurm"], "--on slurm: no sbatch on the PATH; log in to the cluster first, or choose --on local"),
    ],
)  # fmt: skip
def test_what_no_engine_can_do_is_told_in_a_line(
    four_points: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], argv: list[str], said: str
) -> None:
    monkeypatch.setattr(engines, "devices", list)
    monkeypatch.setattr("shutil.which", lambda name: None)
    assert main(["study", "four.toml", "--out", "out", *argv]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith(f"run_ladder.py: {said}")
    assert not Path("out").exists()


def test_without_submitit_it_is_a_line(
    four_points: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "submitit", None)
    assert main(["study", "four.toml", "--on", "local"]) == 2
    said = "--on local: needs submitit, which is not installed: `make setup CLUSTER=1`"
    assert capsys.readouterr().err == f"run_ladder.py: {said}\n"
