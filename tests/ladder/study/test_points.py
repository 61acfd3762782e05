"""A study's points: their options, the queue that hands them out, and the session of each."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from common.data.dataset import load_dataset
from common.errors import UsageError
from ladder.options.commands import JobOptions
from ladder.records.jobs import JOBS, PointJob, Submission, load_job, save_job, save_submission
from ladder.records.study import Point, PointStatus, Study, load_study, save_study
from ladder.study import engines, point_queue, point_session
from ladder.study.point_queue import Slot, measure_points, slots
from ladder.study.point_session import machine_differences
from ladder.study.spread import how_to_send
from ladder.study.study_file import read_study
from ladder.study.study_session import due, measure_study
from run_ladder import main
from stages.registry import load_all
from tests.ladder.harness import NUMPY

ENTRIES = load_all([NUMPY, "tests.planted:SLOW"])


def study(*statuses: PointStatus) -> Study:
    points = [
        Point(f"seed-{seed}", {"seed": seed}, {"seed": seed, "stages": "all", "rounds": seed + 1}, status)
        for seed, status in enumerate(statuses)
    ]
    return Study("s", "S", "", "now", "command", ["seed"], points)


def test_only_waiting_and_begun_points_are_measured(tmp_path: Path) -> None:
    measured: list[str] = []
    announced: list[tuple[str, int, int]] = []

    def measure(point: Point, folder: Path) -> str | None:
        assert folder == tmp_path / point.name
        assert next(one for one in load_study(tmp_path).points if one.name == point.name).status == "begun"
        measured.append(point.name)
        return "no room" if point.name == "seed-3" else None

    begun = study("measured", "begun", "skipped", "waiting", "waiting")
    done = measure_study(begun, tmp_path, ENTRIES, measure, lambda *event: announced.append(event))
    assert measured == ["seed-1", "seed-3", "seed-4"]
    assert announced == [
        ("seed-1", 4, 8 + 10),
        ("seed-3", 8, 10),
        ("seed-4", 10, 0),
    ]  # jobs are rounds times two stages
    assert [point.status for point in done.points] == ["measured", "measured", "skipped", "skipped", "measured"]
    assert done.points[3].reason == "no room"
    assert load_study(tmp_path) == done


def test_an_interrupted_study_leaves_a_whole_index(tmp_path: Path) -> None:
    def interrupted(point: Point, folder: Path) -> str | None:
        if point.name == "seed-1":
            raise KeyboardInterrupt
        return None

    with pytest.raises(KeyboardInterrupt):
        measure_study(study("waiting", "waiting", "waiting"), tmp_path, ENTRIES, interrupted, lambda *_: None)
    assert [point.status for point in load_study(tmp_path).points] == ["measured", "begun", "waiting"]


def test_only_the_requested_points_are_measured(tmp_path: Path) -> None:
    measured: list[str] = []
    announced: list[tuple[str, int, int]] = []

    def measure(point: Point, folder: Path) -> None:
        measured.append(point.name)

    begun = study("measured", "waiting", "waiting", "begun")
    only = ["seed-3", "seed-1", "seed-0"]
    with pytest.raises(UsageError, match="--points: 'seed-7' is no point of s; its points are seed-0, seed-1"):
        due(begun, ["seed-0", "seed-7"])
    measure_study(begun, tmp_path, ENTRIES, measure, lambda *event: announced.append(event), only)
    assert measured == ["seed-1", "seed-3"]
    assert announced == [("seed-1", 4, 8), ("seed-3", 8, 0)]
    assert [point.status for point in load_study(tmp_path).points] == ["measured", "measured", "waiting", "measured"]


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


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A study's folder; the signals that a job handles are reset."""
    (tmp_path / JOBS).mkdir()
    before = {number: signal.getsignal(number) for number in point_queue.WARNINGS}
    yield tmp_path
    for number, handler in before.items():
        signal.signal(number, handler)


def measure_by(script: str, folder: Path, names: list[str], free: list[Slot], monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure points by a program that only pretends to; argument 5 is the point."""
    program = folder / "program.py"
    program.write_text(
        f"import os, signal, subprocess, sys, time\nname = sys.argv[5]\nos.chdir({str(folder)!r})\n{script}"
    )
    monkeypatch.setattr(point_queue, "PROGRAM", program)
    measure_points(folder, names, free, [])


def test_hyperthreads_of_a_core_stay_together_and_no_two_slots_share(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for core in range(8):  # 0 and 4 are one core, 1 and 5, ...
        (tmp_path / f"cpu{core}/topology").mkdir(parents=True)
        siblings = f"{core % 4},{core % 4 + 4}" if core % 2 else f"{core % 4}-{core % 4},{core % 4 + 4}"
        (tmp_path / f"cpu{core}/topology/thread_siblings_list").write_text(siblings + "\n")
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    assert slots(2, ["3", "1"], tmp_path) == [Slot("3", {0, 4, 1, 5}), Slot("1", {2, 6, 3, 7})]
    assert slots(2, ["0", "1", "2", "3"], tmp_path)[1].gpus == "2,3"
    assert slots(3, [], tmp_path / "nothing")[2] == Slot("", {4, 5})  # two of eight, where nothing is known of siblings
    assert slots(1, ["0"]) == [Slot("0", None)]
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})
    assert [slot.cores for slot in slots(3, [])] == [{0, 1}] * 3  # more slots than cores share them all


def test_each_job_of_a_host_has_gpus_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "devices", lambda: [None] * 4)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6,7")
    assert [slot.gpus for slot in engines.local_slots(2, 2)] == ["4,5", "6,7"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7,MIG-5,4,3,9,1")  # CUDA ends at the first that it does not know
    assert [slot.gpus for slot in engines.local_slots(4, 1)] == ["7", "MIG-5", "4", "3"]
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert [slot.gpus for slot in engines.local_slots(3, 1)] == ["0", "1", "2"]
    with pytest.raises(UsageError, match="--parallel 3: with --gpus 2 needs 6 GPUs, this host has 4"):
        engines.local_slots(3, 2)


@pytest.mark.parametrize(
    ("study", "here", "gpus", "parallel"), [("two-gpus", 5, 2, 2), ("two-gpus", 0, 0, 1), ("hidden-size", 5, 1, 5)]
)
def test_a_job_has_the_gpus_that_its_points_divide_batches_among(
    study: str, here: int, gpus: int, parallel: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "devices", lambda: [None] * here)
    plan = read_study(Path(__file__).parents[3] / "experiments" / f"{study}.toml", "", "")
    how = how_to_send(JobOptions(on="local"), plan, load_all(), [])
    assert (how.gpus, how.parallel) == (gpus, parallel)


def test_points_run_at_once_each_with_its_gpu_and_cores(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    core = min(os.sched_getaffinity(0))
    meet = """
open(os.environ["CUDA_VISIBLE_DEVICES"], "w").close()
while name != "c" and not (os.path.exists("5") and os.path.exists("7")):
    time.sleep(0.05)
print(name, os.environ["CUDA_VISIBLE_DEVICES"], os.sched_getaffinity(0), flush=True)
"""
    measure_by(meet, folder, ["a", "b", "c"], [Slot("5", {core}), Slot("7", {core})], monkeypatch)
    said = [(folder / "logs" / f"{name}.log").read_text().split(maxsplit=2) for name in "abc"]
    assert [words[:2] for words in said[:2]] == [["a", "5"], ["b", "7"]]
    assert said[2][1] in ("5", "7")
    assert all(words[2].strip() == str({core}) for words in said)


def test_a_point_that_dies_is_marked_and_the_others_go_on(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    die = 'os.kill(os.getpid(), signal.SIGSEGV) if name == "a" else sys.exit(3)'
    measure_by(die, folder, ["a", "b"], [Slot()], monkeypatch)
    found = [load_job(name, folder) for name in "ab"]
    assert [(job.state, job.reason) for job in found] == [
        ("stopped", "its process was killed by SIGSEGV"),
        ("stopped", "its process ended with 3"),
    ]
    assert all(job.ended >= job.began > 0 and job.host for job in found)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR2])
def test_a_job_that_is_told_to_end_tells_its_points(
    folder: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    wait = f"""
signal.signal(signal.SIGTERM, lambda *_: (open("told", "w").close(), sys.exit(130)))
os.kill(os.getppid(), {int(number)})
os.kill(os.getpid(), signal.SIGSTOP)
time.sleep(60)
"""
    measure_by(wait, folder, ["a", "b"], [Slot()], monkeypatch)
    assert (folder / "told").exists()
    assert load_job("a", folder).reason == point_queue.WARNINGS[number]
    assert load_job("b", folder).state == "waiting"


def test_one_that_does_not_stop_is_killed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(point_queue, "GRACE_S", 0.5)
    deaf = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nos.kill(os.getppid(), signal.SIGTERM)\ntime.sleep(60)"
    measure_by(deaf, folder, ["a"], [Slot()], monkeypatch)
    assert load_job("a", folder).reason == "cancelled or preempted"
