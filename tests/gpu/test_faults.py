"""What a stage does to the GPU stays in its own process, and its row says what it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.ladder.harness import Watcher, prepare

pytestmark = [pytest.mark.gpu, pytest.mark.alone]


def test_a_stage_that_breaks_the_gpu_leaves_a_row_and_the_next_one_runs(tmp_path: Path) -> None:
    sources = ("tests.planted:GPU_MEMORY", "tests.planted:ASTRAY", "stages.classic.naive:STAGE")
    memory, astray, naive = prepare(tmp_path, *sources).run(Watcher()).stages
    assert (memory.status, naive.status, astray.status) == ("crashed", "passed", "crashed")
    assert memory.reason is not None
    assert memory.reason.startswith("out of memory: Out of memory allocating")
    assert astray.reason is not None
    assert "an illegal memory access was encountered" in astray.reason
