"""A run of stages that train on several ranks, on the CPU."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from tests.ladder.harness import NUMPY, Watcher, prepare, small_problem


def test_a_fault_of_a_rank_ends_all_and_costs_its_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STARTED_BY", str(tmp_path))  # all processes of the run inherit it
    sources = [f"tests.planted_ranks:{name}" for name in ("RIGHT", "FAILS", "DIES", "HANGS")]
    problem = small_problem(batch_size=31, gpus=2)
    right, fails, dies, hangs, numpy = (
        prepare(tmp_path, *sources, NUMPY, problem=problem, timeout_s=30.0).run(Watcher()).stages
    )
    assert (right.status, right.reason, right.detail) == ("passed", None, "2 GPUs")
    assert (numpy.status, numpy.reason) == ("passed", None)
    assert {fails.status, dies.status, hangs.status} == {"crashed"}
    assert str(fails.reason).startswith("RankError: rank 1: ValueError: the kernel said no (")
    assert str(dies.reason).startswith("RankError: rank 1 has ended (")
    assert str(hangs.reason).startswith("no answer within 30 s (--timeout)")
    assert not [command for command in left_of(tmp_path) if "common.ranks" in command]


def left_of(folder: Path) -> list[str]:
    """The commands of processes that still run."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if f"STARTED_BY={folder}".encode() in (process / "environ").read_bytes().split(b"\0"):
                found.append((process / "cmdline").read_text().replace("\0", " "))
    return found
