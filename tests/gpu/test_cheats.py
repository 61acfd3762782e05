"""Cheats that only a GPU makes possible are caught; work on an undeclared stream is timed too."""

from __future__ import annotations

import pytest

from ladder.records.run import StageResult
from tests.cheats.defects import CAUGHT
from tests.cheats.table import NAMES
from tests.ladder.harness import Watcher, prepare, small_problem

pytestmark = [pytest.mark.gpu, pytest.mark.alone]

FAILED_BY = {NAMES[stage].partition(":")[2]: what for stage, what in CAUGHT["on a GPU"].items()}


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> dict[str, StageResult]:
    names = (*FAILED_BY, "SIDE_STREAM")
    problem = small_problem(hidden=(16,), batch_size=16)
    sources = [f"tests.cheats.on_gpu:{name}" for name in names]
    results = prepare(tmp_path_factory.mktemp("cheats"), *sources, problem=problem, salt=1).run(Watcher())
    return dict(zip(names, results.stages, strict=True))


@pytest.mark.parametrize("name", FAILED_BY)
def test_a_cheat_on_the_gpu_is_caught(judged: dict[str, StageResult], name: str) -> None:
    stage = judged[name]
    if stage.status == "skipped":
        pytest.skip(str(stage.reason))
    assert FAILED_BY[name] in [check.what for check in stage.checks if not check.passed], stage.reason
    assert (stage.status, stage.timing) == ("failed", None)


def test_work_on_a_stream_that_nobody_named_is_in_the_time(judged: dict[str, StageResult]) -> None:
    stage = judged["SIDE_STREAM"]
    if stage.status == "skipped":
        pytest.skip(str(stage.reason))
    assert (stage.status, stage.reason) == ("passed", None)
    assert stage.timing is not None
    assert stage.timing.epoch_s.min > 0.02
