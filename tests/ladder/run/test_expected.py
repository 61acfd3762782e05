"""Estimates: of which runs there are any, and when a rung is said to lose."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from common.problem import Problem
from ladder.options.run_options import RunOptions
from ladder.records.expectation import Expected
from ladder.records.run import load
from ladder.run import session
from ladder.run.expected import Costs, RecordedRun, RungCost, expectations, expected_here, recorded_costs
from stages.registry import load_all
from tests.ladder.harness import NUMPY, Watcher, prepare, small_dataset, small_problem

pytestmark = pytest.mark.usefixtures("in_process")

LOGISTIC = Problem(784, 10)
LARGEST = recorded_costs().largest


def model(below: float, above: float, error: float) -> Costs:
    """cuda-graph, and fused-head that adds to it, in us per step."""
    rungs = {
        "cuda-graph": RungCost("", {"step": below}, 0.5, 0.4, 0.9, 0.1, 9, 1.0, [0.8, 1.2]),
        "fused-head": RungCost("cuda-graph", {"step": above}, error, error, error, 0.1, 9, 1.0, [0.8, 1.2]),
    }
    return Costs("a GPU", "a host", 2.5, 132, 232_448, {}, 0.3, LARGEST, [1.0, 2.0], rungs)


@pytest.mark.parametrize(("name", "times"), [("torch-eager", 1.5), ("torch-compile", 1.5), ("torch-graph", 1.0)])
def test_a_host_s_pace_differs_between_recordings_of_a_network_by_eager_or_compiled_steps(
    name: str, times: float
) -> None:
    runs = {str(us): RecordedRun("", [], 128, {name: us}) for us in (20.0, 30.0)}
    runs["another network"] = RecordedRun("", [256], 128, {name: 90.0})
    assert replace(model(10.0, 1.0, 0.1), runs=runs).eager_differs == times


@pytest.mark.parametrize(("adds", "error", "loses"), [(1.2, 0.036, True), (1.2, 0.038, False), (0.4, 0.01, False)])
def test_a_rung_loses_by_more_than_five_per_cent_and_the_error(adds: float, error: float, loses: bool) -> None:
    found = expectations(LOGISTIC, 468, model(10, adds, error))["fused-head"]
    assert found.us == pytest.approx(10 + adds)
    assert found.times_from == pytest.approx(10 / (10 + adds))
    assert found.error == pytest.approx((0.5**2 + error**2) ** 0.5)
    assert found.remark == ("expected to lose here: 11 us, cuda-graph 10" if loses else "")


def test_nothing_is_expected_of_another_gpu_or_of_a_timed_validation() -> None:
    gpu = recorded_costs().gpu
    assert "cuda-graph" in expected_here(LOGISTIC, 468, gpu)
    assert expected_here(LOGISTIC, 468, "NVIDIA H100 80GB HBM3") == {}
    assert expected_here(LOGISTIC, 468, None) == {}
    for other in (Problem(784, 10, validate_every=1), Problem(784, 10, networks=2)):
        assert expected_here(other, 468, gpu) == {}
    for larger in (Problem(784, 10, (64,) * 400), Problem(784, 10, batch_size=8_193)):
        assert expectations(larger, 1) == {}


def test_a_rung_that_does_not_take_the_network_has_no_estimate() -> None:
    assert "last-layer" not in expectations(LOGISTIC, 468)
    assert "persistent-cluster" not in expectations(Problem(784, 10, (1024,)), 468)
    assert "persistent-cluster" in expectations(Problem(784, 10, (256,)), 468)


def test_a_run_says_and_records_it_beforehand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = Expected(66.0, 0.1, "a GPU", 0.8, "exact-u8", 53.0)
    monkeypatch.setattr(session, "expected_here", lambda *_: {"numpy": expected})
    watcher = Watcher()
    prepare(tmp_path, NUMPY).run(watcher)
    assert watcher.notes[0] == "numpy: expected to lose here: 66 us, exact-u8 53"
    assert [stage.expected for stage in load(tmp_path).stages] == [expected]


def test_a_rung_that_should_lose_to_another_chosen_one_is_timed_by_name_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = Expected(66.0, 0.1, "a GPU", 0.8, "cpu-loops", 53.0)
    monkeypatch.setattr(session, "expected_here", lambda *_: {"cpu-blas": expected})
    monkeypatch.setattr(session, "posed", lambda *_: (small_problem(), small_dataset()))
    for words, timed in (
        (["cpu-loops..cpu-blas"], ["cpu-loops"]),
        (["cpu-loops", "cpu-blas"], ["cpu-loops", "cpu-blas"]),
        (["cpu-blas..cpu-sparse-metrics"], ["cpu-blas", "cpu-sparse-metrics"]),
    ):
        watcher, options = Watcher(), RunOptions(stages=tuple(words), profile=())
        runner, _ = session.begin(options, load_all(), tmp_path / words[0], watcher, "test")
        assert [stage.name for stage in runner.ledger.stages] == timed
        told = "cpu-blas: expected to lose here: 66 us, cpu-loops 53; it is not timed unless --stages names it"
        assert (told in watcher.notes) == (len(timed) == 1)
