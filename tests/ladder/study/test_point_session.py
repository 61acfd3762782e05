"""One point inside a job: refused on a node that is not like the study's, and compiled once for all that are alike."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from common.data.dataset import load_dataset
from common.errors import UsageError
from ladder.records.jobs import JOBS, PointJob, Submission, load_job, save_job, save_submission
from ladder.records.study import save_study
from ladder.study import point_session
from ladder.study.point_session import machine_differences
from ladder.study.study_file import read_study
from run_ladder import main

H200 = {"name": "NVIDIA H200", "driver": "580", "visible_gpus": 1}


@pytest.fixture
def sent(four_points: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a study that was sent, whose first job ran here, when this host seemed to have an H200."""
    monkeypatch.setattr("ladder.machine.environment._describe_gpu", lambda: dict(H200))
    folder = four_points / "out"
    (folder / JOBS).mkdir(parents=True)
    save_study(read_study(Path("four.toml"), "study", "now"), folder)
    (folder / JOBS / point_session.MACHINE).write_bytes(msgspec.json.encode(point_session.machine()))
    return folder


def measured(folder: Path, point: str = "hidden-4", data: list[dict[str, str]] | None = None) -> PointJob:
    """The state of a point after its job, in a study that began with this data, or the default."""
    data = [load_dataset(data_dir=None, seed=0).sha256] if data is None else data
    save_submission(Submission("slurm", "login", 1, 1, {}, data), folder)
    save_job(PointJob(point, "running", job="7_0", host="node1", began=time.time()), folder)
    assert main(["study", "--resume", str(folder), "--points", point, "--in-job", str(os.getppid())]) == 0
    return load_job(point, folder)


@pytest.mark.parametrize(
    ("gpu", "said"),
    [
        ({"name": "NVIDIA A100"}, "gpu name NVIDIA A100, the study's is NVIDIA H200"),
        ({"driver": "570"}, "gpu driver 570, the study's is 580"),
        ({"none": "no NVIDIA driver"}, "no NVIDIA driver; name one kind of node"),
    ],
)
def test_a_node_with_another_gpu_driver_or_none_measures_nothing(
    sent: Path, monkeypatch: pytest.MonkeyPatch, gpu: dict[str, str], said: str
) -> None:
    monkeypatch.setattr("ladder.machine.environment._describe_gpu", lambda: {**H200, **gpu, "visible_gpus": 2})
    job = measured(sent)
    assert job.state == "stopped"
    assert said in str(job.reason)
    assert not (sent / "hidden-4").exists()


def test_another_data_set_is_refused_and_what_cannot_be_is_skipped(sent: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "not the data that the study began with" in str(measured(sent, data=[]).reason)
    monkeypatch.setattr("ladder.run.preflight.check_fits", fails)
    assert measured(sent).state == "skipped"


def fails(*_: Any) -> None:
    raise UsageError("batch size 4000: too many")


def test_the_first_of_two_jobs_decides_what_machine_a_study_is_of(tmp_path: Path) -> None:
    then = {"gpu": {"name": "A"}, "code": {"git_commit": "1"}}
    assert point_session._claimed(then, tmp_path / "machine.json") == then
    assert point_session._claimed({"gpu": {"name": "B"}}, tmp_path / "machine.json") == then
    assert [path.name for path in tmp_path.iterdir()] == ["machine.json"]
    assert machine_differences(then, then) == ""
    assert machine_differences(then, {"gpu": {"name": "A", "driver": "1"}}) == "gpu driver 1, the study's is missing"


def test_jobs_with_one_network_compile_one_after_the_other(tmp_path: Path) -> None:
    inside, most = list[str](), list[int]()

    def compile_(name: str) -> None:
        with point_session._one_at_a_time(tmp_path / name):
            inside.append(name)
            most.append(inside.count(name))
            time.sleep(0.2)
            inside.remove(name)

    threads = [threading.Thread(target=compile_, args=(name,)) for name in "aab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1, 1, 1]
