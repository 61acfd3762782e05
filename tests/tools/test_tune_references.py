"""Tuning the references: which variant wins, and how a process that fails or hangs is replaced."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from common.problem import Problem
from stages.references import choices
from tests.stages.engine.test_step import random_split
from tools import tune_references
from tools.tune_references import NETWORKS, TUNED, Apart, Result, Trial, main, measured, network, steps_of, tune, winner

ROOT = Path(__file__).parents[2]
LOGISTIC = Problem(784, 10)
DEFAULT = TUNED["jax-scan"].default


@pytest.fixture(autouse=True)
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "choices.json"
    monkeypatch.setattr(choices, "FILE", path)
    return path


def test_every_recorded_network_is_tuned_and_wide_ones_and_large_batches() -> None:
    recorded = set()
    for path in ROOT.glob("results/reference/*/*/results.json"):
        problem = json.loads(path.read_text())["problem"]
        recorded.add((problem["inputs"], tuple(problem["hidden"]), problem["classes"], problem["batch_size"]))
    tuned = {(problem.inputs, problem.hidden, problem.classes, problem.batch_size) for problem in NETWORKS}
    assert len(recorded) >= 6
    assert recorded <= tuned
    assert {((2048,) * 3, 32), ((4096,) * 3, 32), ((256,), 1), ((256,), 512), ((256,), 2048), ((256,), 8192)} <= {
        (hidden, batch) for _, hidden, _, batch in tuned
    }
    assert len({network(problem) for problem in NETWORKS}) == len(NETWORKS)


def test_an_epoch_is_as_long_as_float64_can_repeat() -> None:
    assert steps_of(LOGISTIC, 60_000) == 468
    assert steps_of(Problem(784, 10, (4096, 4096, 4096), batch_size=32), 60_000) == 28
    assert [steps_of(Problem(784, 10, (256,), batch_size=batch), 60_000) for batch in (8192, 1)] == [7, 5124]


@pytest.mark.parametrize(
    ("others", "wins"),
    [
        ({}, "default"),
        ({"fast": Result(9.0, 1.0, 1e-6), "faster": Result(8.0, 90.0, 9e-6)}, "faster"),
        ({"as fast": Result(9.9, 1.0, 1e-6)}, "default"),
        ({"wrong": Result(1.0, 1.0, 1.1e-5), "fast": Result(9.0, 1.0, 1e-6)}, "fast"),
        ({"no number": Result(1.0, 1.0, float("nan"))}, "default"),
    ],
)
def test_the_fastest_wins_if_it_is_as_exact_and_clearly_faster(others: dict[str, Result], wins: str) -> None:
    assert winner({"default": Result(10.0, 1.0, 1e-6), **others}, "default") == wins


@pytest.mark.jax
def test_a_network_is_tuned_by_asking_for_every_variant(capsys: pytest.CaptureFixture[str]) -> None:
    asked: list[Trial] = []

    def ask(trial: Trial) -> Result | str:
        asked.append(trial)
        us = {DEFAULT: 20.0, "unroll 4": 10.0}.get(trial.variant)
        return Result(us, 3.0, 1e-6) if us else "stopped after 150 s"

    choice = tune("jax-scan", LOGISTIC, "a GPU", ask)
    assert choice is not None
    assert (choice.gpu, choice.variant, choice.step_us, choice.default_step_us) == ("a GPU", "unroll 4", 10.0, 20.0)
    assert choice.problem.layers == LOGISTIC.layers
    assert choice.library.startswith("jax ")
    assert [trial.variant for trial in asked] == [*TUNED["jax-scan"].variants, DEFAULT, "unroll 4"]
    rows = capsys.readouterr().out.splitlines()
    assert len(rows) == len(asked)
    assert rows[0].split()[:2] == ["jax-scan", "784-10/128"]
    assert "20.00 us  prepare   3.0 s  parameters 1.0e-06" in rows[0]
    assert "stopped after 150 s" in rows[-3]
    asked.clear()
    assert tune("jax-scan", LOGISTIC, "a GPU", ask, only=["unroll 1"]) is not None
    assert [trial.variant for trial in asked] == [DEFAULT, "unroll 1"]  # named ones, beside the default


@pytest.mark.jax
@pytest.mark.parametrize(("again", "wins", "us"), [(12.0, DEFAULT, 9.9), (9.0, "unroll 4", 9.0)])
def test_a_default_that_was_slowed_by_other_work_has_another_chance(again: float, wins: str, us: float) -> None:
    times = {DEFAULT: iter([30.0, 9.9]), "unroll 4": iter([10.0, again])}

    def ask(trial: Trial) -> Result | str:
        return Result(next(times[trial.variant]), 1.0, 1e-6) if trial.variant in times else "failed"

    choice = tune("jax-scan", LOGISTIC, "a GPU", ask)
    assert choice is not None
    assert (choice.variant, choice.step_us, choice.default_step_us) == (wins, us, 9.9)


def test_without_a_time_of_the_default_nothing_is_chosen() -> None:
    def ask(trial: Trial) -> Result | str:
        return "failed" if trial.variant == DEFAULT else Result(1.0, 1.0, 1e-6)

    assert tune("jax-scan", LOGISTIC, "a GPU", ask) is None


def pretend(trial: Trial) -> Result:
    """In the other process, what the variant's name says; the seconds of preparation are its process."""
    if trial.variant == "hangs":
        time.sleep(1000)
    if trial.variant == "raises":
        raise ValueError("no such option\nand more")
    if trial.variant == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    return Result(1.0, os.getpid(), 0.0)


@pytest.fixture
def apart() -> Iterator[Apart]:
    process = Apart(20.0, pretend)
    yield process
    process.close()


@pytest.mark.parametrize(
    ("variant", "said"),
    [("raises", "ValueError: no such option"), ("killed", "its process ended with -9"), ("hangs", "stopped after 2 s")],
)
def test_a_trial_that_fails_costs_its_process_and_no_other_trial(apart: Apart, variant: str, said: str) -> None:
    def process_of(trial: Trial) -> float:
        result = apart(trial)
        assert isinstance(result, Result)
        return result.prepare_s

    good = Trial("jax-scan", LOGISTIC, "good")
    first = process_of(good)
    assert process_of(good) == first
    if variant == "hangs":
        apart._seconds = 2.0
    answer = apart(Trial("jax-scan", LOGISTIC, variant))
    apart._seconds = 20.0
    assert isinstance(answer, str)
    assert answer.startswith(said)
    assert "\n" not in answer
    with pytest.raises(ProcessLookupError):
        os.kill(int(first), 0)
    assert process_of(good) != first


@pytest.mark.jax
@pytest.mark.parametrize(("stage", "error"), [("jax-scan", 1e-5), ("jax-scan-bf16", 0.1)])
def test_a_trial_times_a_variant_and_compares_it_with_float64(
    monkeypatch: pytest.MonkeyPatch, stage: str, error: float
) -> None:
    split = random_split(64 * 6 + 5, 784, 10)
    monkeypatch.setattr(tune_references, "_train", lambda: split)
    tune_references._oracle_epoch.cache_clear()
    result = measured(Trial(stage, Problem(784, 10, (16,), batch_size=64, learning_rate=0.01), "unroll 4"))
    tune_references._oracle_epoch.cache_clear()
    assert 0.0 < result.error < error
    assert result.step_us > 0.0
    assert result.prepare_s > 0.0


@pytest.mark.jax
def test_the_choices_of_a_gpu_are_kept_as_they_are_made(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], file: Path
) -> None:
    def ask(trial: Trial) -> Result | str:
        us = {"unroll 8": 5.0, DEFAULT: 9.0}.get(trial.variant, 20.0)
        return "failed" if trial.problem.hidden else Result(us, 1.0, 1e-6)

    class Fake:
        def __init__(self, seconds: float) -> None:
            assert seconds == tune_references.SECONDS

        def __call__(self, trial: Trial) -> Result | str:
            return ask(trial)

        def close(self) -> None:
            pass

    monkeypatch.setattr(tune_references, "devices", lambda: [SimpleNamespace(name="a GPU")])
    monkeypatch.setattr(tune_references, "Apart", Fake)
    assert main(["jax-scan", "--network", "784-10/128", "--network", "784-256-10/8192"]) == 0
    (kept,) = choices.read()
    assert (kept.stage, kept.gpu, kept.hidden, kept.variant) == ("jax-scan", "a GPU", (), "unroll 8")
    said = capsys.readouterr().out
    assert "kept: unroll 8" in said
    assert "nothing kept: its default has no time" in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["torch-grph"], f"stage 'torch-grph': has no variants; choose from {', '.join(TUNED)}"),
        (["--seconds", "0"], "--seconds 0: must be more than 0"),
        ([], "no NVIDIA GPU here; the choices are of a GPU"),
    ],
)
def test_a_mistake_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    monkeypatch.setattr(tune_references, "devices", list)
    assert main(arguments) == 2
    assert capsys.readouterr().err.splitlines() == [f"tune_references: {said}"]
