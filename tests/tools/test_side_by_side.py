"""Commands on a GPU each: who gets which cores, what runs at once, and what ends it all."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tools.side_by_side import Slot, run, slots


def command(script: str) -> str:
    return f"bash -c '{script}'"


def test_hyperthreads_of_a_core_stay_together_and_nobody_shares(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for core in range(8):  # 0 and 4 are one core, 1 and 5, ...
        (tmp_path / f"cpu{core}/topology").mkdir(parents=True)
        siblings = f"{core % 4},{core % 4 + 4}" if core % 2 else f"{core % 4}-{core % 4},{core % 4 + 4}"
        (tmp_path / f"cpu{core}/topology/thread_siblings_list").write_text(siblings + "\n")
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert slots(2, tmp_path) == [Slot("0", {0, 4, 1, 5}), Slot("1", {2, 6, 3, 7})]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,1")
    assert [slot.gpu for slot in slots(2, tmp_path)] == ["3", "1"]
    assert slots(3, tmp_path / "nothing")[2].cores == {4, 5}  # two of eight each, where nothing is known of siblings


def test_on_one_gpu_one_follows_the_other_on_the_terminal(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    jobs = [("first", command("sleep 0.3; echo one")), ("second", command("echo two; exit 1"))]
    assert run(jobs, slots(1), tmp_path / "logs") == 1
    said = [line for line in capfd.readouterr().out.splitlines() if "took" not in line]
    assert said == ["one", "two"]
    assert not (tmp_path / "logs").exists()


def test_on_several_they_run_at_once_each_with_its_gpu_and_cores(tmp_path: Path) -> None:
    cores = min(os.sched_getaffinity(0))
    free = [Slot("5", {cores}), Slot("7", {cores})]
    meet = f"touch {tmp_path}/$CUDA_VISIBLE_DEVICES; until [ -e {tmp_path}/%s ]; do sleep 0.05; done; taskset -pc $$"
    jobs = [("a", command(meet % 7)), ("b", command(meet % 5)), ("c", command("echo $CUDA_VISIBLE_DEVICES"))]
    assert run(jobs, free, tmp_path / "logs") == 0
    assert all(f"list: {cores}" in (tmp_path / "logs" / f"{name}.log").read_text() for name in "ab")
    assert (tmp_path / "logs" / "c.log").read_text().strip() in ("5", "7")


def test_more_gpus_than_cores_share_them_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})
    assert [slot.cores for slot in slots(3, Path("/nowhere"))] == [{0, 1}] * 3


def test_an_odd_number_of_cores_parts_no_siblings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for core in range(6):  # three cores of two threads
        (tmp_path / f"cpu{core}/topology").mkdir(parents=True)
        (tmp_path / f"cpu{core}/topology/thread_siblings_list").write_text(f"{core % 3},{core % 3 + 3}\n")
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(6)))
    assert [slot.cores for slot in slots(2, tmp_path)] == [{0, 3}, {1, 4}]


def test_what_a_shell_waits_for_is_interrupted_too(tmp_path: Path) -> None:
    nested = f"bash -c 'bash -c \"sleep 50; touch {tmp_path}/done\" || exit 3'"
    cores = os.sched_getaffinity(0)
    begun = time.monotonic()
    jobs = [("nested", nested), ("bad", command("sleep 0.5; exit 2"))]
    assert run(jobs, [Slot("0", cores), Slot("1", cores)], tmp_path / "logs") == 2
    assert time.monotonic() - begun < 20
    assert not (tmp_path / "done").exists()


@pytest.mark.parametrize(("ends", "status"), [("exit 2", 2), ("exit 130", 130), ("kill -KILL $$", 137)])
def test_one_that_is_refused_ends_the_others_and_what_waits(tmp_path: Path, ends: str, status: int) -> None:
    long = command(f'trap "touch {tmp_path}/told; exit 130" INT; sleep 60 & wait')
    jobs = [("long", long), ("bad", command(f"sleep 0.5; {ends}")), ("never", command(f"touch {tmp_path}/never"))]
    cores = os.sched_getaffinity(0)
    begun = time.monotonic()
    assert run(jobs, [Slot("0", cores), Slot("1", cores)], tmp_path / "logs") == status
    assert time.monotonic() - begun < 30
    assert (tmp_path / "told").exists()
    assert not (tmp_path / "never").exists()
