"""Every planted defect is caught, and by the check that has to catch it."""

from __future__ import annotations

import pytest

from ladder.results import StageResult
from tests.ladder.harness import NUMPY, Watcher, prepare, small_problem

CAUGHT_BY = {
    "NAN": "first update, weight[0]",
    "GRADIENT": "first update, scale",
    "LAST_STEP": "epoch from zeros, parameters",
    "SAME_BATCH": "first 3 updates, weight[0]",
    "NO_BIAS": "first update, bias[0]",
    "TWICE": "first update, weight[0]",
    "LEFT_BEHIND": "first update, weight[0]",
    "OLD_PARAMS": "epoch from zeros, parameters",
    "LABELS": "first update, weight[0]",
    "METRICS": "first update, loss",
}


@pytest.fixture(scope="module", params=[(), (16,)], ids=["logistic", "mlp"])
def judged(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, StageResult]:
    sources = [f"tests.planted:{name}" for name in CAUGHT_BY]
    problem = small_problem(hidden=request.param)
    runner = prepare(tmp_path_factory.mktemp("planted"), NUMPY, *sources, problem=problem)
    results = runner.run(Watcher())
    return {stage.name.replace("-", "_").upper(): stage for stage in results.stages}


@pytest.mark.parametrize("name", CAUGHT_BY)
def test_planted_defect_is_caught(judged: dict[str, StageResult], name: str) -> None:
    stage = judged[name]
    assert CAUGHT_BY[name] in [check.what for check in stage.checks if not check.passed]
    assert stage.status == "failed"
    assert stage.timing is None
    assert stage.reason


def test_the_honest_one_passes(judged: dict[str, StageResult]) -> None:
    assert judged["NUMPY"].status == "passed"
    assert judged["NUMPY"].timing is not None
    assert all(check.passed for check in judged["NUMPY"].checks)


def test_an_error_of_one_per_cent_is_far_beyond_its_limit(judged: dict[str, StageResult]) -> None:
    (scale,) = [check for check in judged["GRADIENT"].checks if check.what == "first update, scale"]
    assert scale.error == pytest.approx(0.01, rel=0.01)
    assert scale.limit < 1e-4
