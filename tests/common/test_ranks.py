"""Ranks as processes: they train together, and none outlives another. Freed memory stays with its process."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from common.problem import Params
from common.ranks import Others, shared_params

ROOT = Path(__file__).parents[2]
LOST, HOWS = "common.ranks.RankError: ", ("is-killed", "is-stopped", "fails")

SCRIPT = """
import os, signal, sys, time
from common.process_group import children
from common.problem import Problem, initial_params
from stages.engine.ranks import RanksTrainer
from tests.stages.devices.rank_parts import build
from tests.stages.engine.test_step import random_split

problem = Problem(5, 3, batch_size=4, gpus=3)
trainer = RanksTrainer(build, problem, random_split(8, 5, 3))
trainer.load_params(initial_params(problem, 0))
trainer.run_epoch(0)
trainer.wait()
others = sorted(children())
own = trainer.read_params().weights[0]
print(*others, all((own == one.weights[0]).all() for one in trainer.replicas()))
sys.stdout.flush()
"""


def run(then: str) -> tuple[int, list[str], str]:
    """The exit code, the words that the script printed, and its errors."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT + then], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    return done.returncode, done.stdout.split(), done.stderr


def assert_ended(processes: list[str]) -> None:
    ends = time.monotonic() + 20
    while any(Path("/proc", process).exists() for process in processes):
        assert time.monotonic() < ends, f"{processes} still run"
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("then", "code", "said"),
    [
        ("trainer.close()", 0, ""),
        ("raise SystemExit(3)", 3, ""),
        ("os.kill(os.getpid(), signal.SIGKILL)", -9, ""),
        ("os.kill(others[1], signal.SIGKILL); trainer.run_epoch(1)", 1, "common.ranks.RankError: rank 2 has ended"),
        ("os.kill(others[0], signal.SIGKILL); time.sleep(50)", 1, LOST + "rank 1 was killed by SIGKILL"),
        ("os.kill(others[1], signal.SIGSTOP); time.sleep(50)", 1, LOST + "rank 2 was stopped by SIGSTOP"),
        ("trainer._others.links[1].send(('epoch', 9, None)); time.sleep(50)", 1, LOST + "rank 2: KeyError: 9"),
        (
            "os.kill(others[0], signal.SIGSTOP); time.sleep(0.5); os.kill(others[0], signal.SIGCONT); time.sleep(4)\n"
            "trainer.run_epoch(1)",
            0,
            "",
        ),
    ],
    ids=["closed", "ended", "killed", "a-rank-killed", *(f"waits-while-a-rank-{how}" for how in HOWS), "goes-on"],
)
def test_no_rank_outlives_another(then: str, code: int, said: str) -> None:
    ended, (*others, same), errors = run(then)
    assert (ended, same, len(others)) == (code, "True", 2)
    assert said in errors.splitlines() or not said
    assert_ended(others)


FAULTS = """
import resource
import numpy as np
from common.arrays import keep_freed_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    arrays = [np.ones(1 << 18) for _ in range(8)]  # 16 MiB
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

if {keeps}:
    keep_freed_memory()
faults()
faults()
print(faults())
"""


def faults(*, keeps: bool) -> int:
    """The pages that Linux had to clear for 16 MiB that were used and freed before."""
    return int(subprocess.check_output([sys.executable, "-c", FAULTS.format(keeps=keeps)], text=True))


@pytest.mark.skipif(sys.platform != "linux", reason="mallopt is of the GNU C library")
def test_freed_memory_is_used_again_without_new_pages() -> None:
    assert faults(keeps=True) < 100 < faults(keeps=False)


def test_all_tensors_are_shared_each_in_its_place() -> None:
    file, numbers = os.memfd_create("ranks"), np.arange(1, 18, dtype=np.float32)
    weights = numbers[:6].reshape(2, 3), numbers[6:12].reshape(3, 2)
    params = Params(weights, (numbers[12:15], numbers[15:]), (numbers[3:4],))
    Others([], file).load(0, params)
    seen = shared_params(file, [array.shape for array in params.arrays], 2)
    assert all(map(np.array_equal, seen.arrays, params.arrays))
