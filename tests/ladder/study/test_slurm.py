"""A study on a real Slurm of one node: jobs that are cancelled, late or killed, and the same table in the end."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from ladder.records.jobs import load_job
from run_ladder import main
from tests.ladder.study import slurm
from tests.ladder.study.jobs import PATIENCE_S, Start, job_of, measuring, verdicts


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of a running cluster."""
    if reason := slurm.lacking():
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("slurm")
    with ExitStack() as stack:
        try:
            stack.enter_context(slurm.one_node(folder))
        except slurm.CannotStartError as error:
            pytest.skip(str(error))
        yield folder


@pytest.fixture
def here(cluster: Path, four_points: Path) -> Path:
    """The current folder, on a cluster."""
    return four_points


def test_a_study_survives_its_jobs_and_ends_as_in_one_process(here: Path, start: Start) -> None:
    watching = start("four.toml", "--on", "slurm", "--parallel", "2", "--out", "out")
    cancelled = job_of("hidden-3", here / "out")
    subprocess.run(["scancel", cancelled], check=True)
    late = job_of("hidden-4", here / "out")
    os.kill(measuring("hidden-4", Path("out"))[0], signal.SIGSTOP)  # it hangs until its time is over
    subprocess.run(["scontrol", "update", f"JobId={late}", "TimeLimit=1"], check=True)
    job_of("hidden-5", here / "out")
    os.kill(measuring("hidden-5", Path("out"))[0], signal.SIGKILL)
    out, err = watching.communicate(timeout=PATIENCE_S)
    assert watching.returncode == 2
    assert err == (
        "run_ladder.py: out: not measured: hidden-3 (cancelled or preempted), hidden-4 (out of time), "
        "hidden-5 (its process was killed by SIGKILL); continue with study --resume out\n"
    )
    assert "hidden-6: measured in" in out
    kept = (here / "out" / "hidden-6" / "results.json").read_bytes()

    resumed = start("--resume", "out")
    job_of("hidden-3", here / "out")
    second = start("--resume", "out")
    assert second.communicate(timeout=PATIENCE_S)[1].startswith("run_ladder.py: out: another run is writing there")
    out, err = resumed.communicate(timeout=PATIENCE_S)
    assert (resumed.returncode, second.returncode, err) == (0, 2, "")
    assert kept == (here / "out" / "hidden-6" / "results.json").read_bytes()

    assert main(["study", "four.toml", "--points", "hidden-3", "--out", "whole"]) == 0
    (points, judged), (_, alone) = verdicts(here / "out"), verdicts(here / "whole")
    assert {status for _, status in points} == {"measured"}
    assert {**judged, **alone} == judged


def test_a_job_that_goes_back_into_the_queue_waits_again_and_continues(here: Path, start: Start) -> None:
    watching = start("four.toml", "--on", "slurm", "--points", "hidden-3", "--out", "out")
    job = job_of("hidden-3", here / "out")
    os.kill(measuring("hidden-3", Path("out"))[0], signal.SIGSTOP)  # else it might end before it is requeued
    told = iter(watching.stdout or ())
    assert f"hidden-3: running, job {job} on" in "".join(_until("hidden-3: running", told))
    subprocess.run(["scontrol", "requeue", job], check=True)
    assert f"hidden-3: waiting again, job {job}\n" in _until("hidden-3: waiting", told)
    while b"PENDING" not in subprocess.run(["squeue", "-h", "-o%T", f"-j{job}"], capture_output=True).stdout:
        time.sleep(0.1)
    subprocess.run(["scontrol", "update", f"JobId={job}", "StartTime=now"], check=True)  # rather than in two minutes
    out, err = watching.communicate(timeout=PATIENCE_S)
    assert (watching.returncode, err) == (0, "")
    assert "hidden-3: measured in" in out
    assert load_job("hidden-3", here / "out").job == job


def _until(begin: str, lines: Iterator[str]) -> list[str]:
    """The lines up to the first one that begins so."""
    found: list[str] = []
    for line in lines:
        found.append(line)
        if line.startswith(begin):
            break
    return found


def test_jobs_without_the_caller_s_environment_find_modules_and_data(
    here: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SBATCH_EXPORT", "NONE")
    watching = start("four.toml", "--on", "slurm", "--parallel", "2", "--out", "bare")
    assert watching.communicate(timeout=PATIENCE_S)[1] == ""
    assert watching.returncode == 0


def test_what_slurm_refuses_is_told_in_a_line(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["study", "four.toml", "--on", "slurm", "--slurm", "partition=nowhere", "--out", "out"]) == 2
    (line,) = capfd.readouterr().err.splitlines()
    said = "run_ladder.py: --on slurm: sbatch refused the jobs: error: Batch job submission failed: Invalid partition"
    assert line.startswith(said)


def test_a_folder_that_the_node_does_not_see_is_told_before_it_is_waited_for(
    here: Path, cluster: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    if reason := slurm.cannot_hide():
        pytest.skip(reason)
    out = cluster / "hidden" / "out"
    assert main(["study", "four.toml", "--on", "slurm", "--out", str(out)]) == 2
    assert (
        capfd.readouterr().err
        == f"run_ladder.py: {out}: the nodes do not see it; choose an --out that all nodes share\n"
    )
