"""What a stage does to the GPU stays in its own process, and its row says what it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from ladder.results import load
from tests.ladder.harness import NUMPY, Watcher, prepare

pytestmark = pytest.mark.gpu


def test_a_stage_that_breaks_the_gpu_leaves_a_row_and_the_next_one_runs(tmp_path: Path) -> None:
    sources = ("tests.planted:GPU_MEMORY", "tests.planted:ASTRAY", "stages.naive:STAGE")
    memory, astray, naive = prepare(tmp_path, *sources).run(Watcher()).stages
    assert (memory.status, naive.status, astray.status) == ("crashed", "passed", "crashed")
    assert memory.reason is not None
    assert memory.reason.startswith("out of memory: Out of memory allocating")
    assert astray.reason is not None
    assert "an illegal memory access was encountered" in astray.reason


def test_a_gpu_that_is_gone_between_two_stages_costs_the_rows_that_need_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class TakesTheGpu(Watcher):
        def finish(self, stage: str, status: str, text: str) -> None:
            super().finish(stage, status, text)
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")  # as the processes to come see it

    naive, relaxed, numpy = (
        prepare(tmp_path, "stages.naive:STAGE", "stages.async_metrics:STAGE", NUMPY).run(TakesTheGpu()).stages
    )
    assert (naive.status, relaxed.status, numpy.status) == ("passed", "crashed", "passed")
    assert relaxed.reason is not None
    assert "no CUDA-capable device" in relaxed.reason or "NO_DEVICE" in relaxed.reason
    assert load(tmp_path).stages[0].timing == naive.timing
