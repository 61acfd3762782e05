"""The differences of two runs apart from their times."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from ladder.records.run import Results, StageCode
from reports.facts.run_differences import cannot_compare, differences
from tests.reports import sample


def with_environment(**changes: Any) -> Results:
    run = sample.results()
    return replace(run, environment={**run.environment, **changes})


def with_problem(**changes: Any) -> Results:
    run = sample.results()
    return replace(run, problem=replace(run.problem, **changes))


def test_like_runs_do_not_differ() -> None:
    assert differences(sample.results(), sample.results()) == []
    assert cannot_compare(sample.results(), sample.results()) == ""


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (
            with_environment(gpu={"name": "NVIDIA A100", "driver": "580.65"}),
            "The GPU differs: NVIDIA H200, NVIDIA A100.",
        ),
        (with_environment(gpu={"name": "NVIDIA H200", "driver": "570.1"}), "The driver differs: 580.65, 570.1."),
        (with_environment(cpu={"model": "<b> | c"}), "The CPU differs: a | b, &lt;b> | c."),
        (with_environment(blas={"threads": 4}), "The number of BLAS threads differs: none, 4."),
        (
            with_environment(libraries={"numpy": "2.3.1", "cupy-cuda13x": "14.2.0", "torch": "2.12.0", "jax": "0.11"}),
            "Libraries differ: cuda-toolkit 13.0.2, none; torch 2.11.0, 2.12.0; jax none, 0.11.",
        ),
        (with_environment(code={"git_commit": None}), "The code differs: commits 0123456789, none recorded."),
        (
            with_environment(code={"git_commit": "0123456789" * 4, "uncommitted_changes": False}),
            "The code differs: commits 0123456789, 0123456789.",
        ),
        (with_problem(learning_rate=0.2), "The problems differ in learning rate: 0.1, 0.2."),
        (with_problem(epochs=10), "The problems differ in epochs: 20, 10."),
        (
            with_problem(dataset_sha256={"train": "1"}, dataset="other", is_mnist=False),
            "The data differ: MNIST, other (not MNIST).",
        ),
    ],
)
def test_a_difference_is_one_sentence(other: Results, said: str) -> None:
    assert differences(sample.results(), other) == [said]


def test_commits_with_the_same_stages_are_told_as_such() -> None:
    run = sample.results()
    hashed = [replace(stage, code=StageCode("a", None, scheme=2)) for stage in run.stages]
    then, now = replace(run, stages=hashed), replace(with_environment(code={"git_commit": "f"}), stages=hashed)
    assert differences(then, now) == ["The commits differ, the stages' code does not: commits 0123456789, f."]
    other = replace(now, stages=[replace(hashed[0], code=StageCode("b", None, scheme=2)), *hashed[1:]])
    for changed in (other, replace(now, stages=[])):
        assert differences(then, changed) == ["The code differs: commits 0123456789, f."]


def test_uncommitted_changes_are_told_of_each_run() -> None:
    run = sample.results()
    dirty = with_environment(code={**run.environment["code"], "uncommitted_changes": True})
    assert differences(dirty, run) == ["The first run was made with uncommitted changes."]
    assert differences(run, dirty) == ["The new run was made with uncommitted changes."]


@pytest.mark.parametrize("strange", [{}, {"gpu": None, "cpu": "x", "libraries": [], "code": 3}])
def test_an_environment_of_any_form_is_compared(strange: dict[str, Any]) -> None:
    run = sample.results()
    other = replace(run, environment=strange)
    assert "The GPU differs: NVIDIA H200, none." in differences(run, other)
    assert differences(other, other) == []


def test_another_network_or_batch_is_in_the_way() -> None:
    deeper, wider = with_problem(hidden=[128, 128]), with_problem(batch_size=256)
    assert "different networks (784-256-10, 784-128-128-10)" in cannot_compare(sample.results(), deeper)
    assert "different batch sizes (128, 256)" in cannot_compare(sample.results(), wider)


def test_other_clocks_are_told() -> None:
    run = sample.results()
    locked = replace(run, settings=replace(run.settings, lock_clocks_mhz=1500))
    assert differences(run, locked) == ["The GPU's clock differs: not locked, locked at 1,500 MHz."]
    then, now = (with_environment(gpu_clocks={"sm_mhz": 345, "application_sm_mhz": mhz}) for mhz in (1830, 1980))
    assert differences(then, now) == ["The GPU's application clock differs: 1830, 1980 MHz."]
    assert differences(run, now) == []
