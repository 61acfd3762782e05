"""The points of a job: which GPU and cores each gets, what runs at once, and the reason when one ends badly."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from common.errors import UsageError
from ladder.options.commands import JobOptions
from ladder.records.jobs import JOBS, load_job
from ladder.study import engines, point_queue
from ladder.study.point_queue import Slot, measure_points, slots
from ladder.study.spread import how_to_send
from ladder.study.study_file import read_study
from stages.registry import load_all


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
