"""Tuning the references: which variant wins, what runs side by side, and how a failed process is replaced."""

from __future__ import annotations

import gzip
import json
import os
import re
import signal
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from common.choice import await_turn
from common.problem import Problem
from ladder.measure.timing import timed_run
from stages.references import choices
from tests.ladder.gpus import H200
from tests.stages.engine.test_step import random_split
from tools import tune_references
from tools.tune_references import NETWORKS, TUNED, Builder, Result, Trial, built, chosen, main, steps_of, wave, winner

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
    for path in ROOT.glob("results/reference/*/*/results.json.gz"):
        problem = json.loads(gzip.decompress(path.read_bytes()))["problem"]
        recorded.add((problem["inputs"], tuple(problem["hidden"]), problem["classes"], problem["batch_size"]))
    tuned = [(problem.inputs, problem.hidden, problem.classes, problem.batch_size) for problem in NETWORKS]
    assert len(recorded) >= 6
    assert recorded == set(tuned[: len(recorded)])
    assert {((2048,) * 3, 32), ((4096,) * 3, 32), ((256,), 1), ((256,), 512), ((256,), 2048), ((256,), 8192)} <= {
        (hidden, batch) for _, hidden, _, batch in tuned
    }
    assert len({tune_references.network(problem) for problem in NETWORKS}) == len(NETWORKS)


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
        ({"slow to prepare": Result(8.0, 90.0, 1e-6), "as fast": Result(8.1, 9.0, 1e-6)}, "as fast"),
        ({"default": Result(10.0, 1.0, float("nan")), "fast": Result(9.0, 1.0, 1e-6)}, "default"),
    ],
)
def test_the_fastest_wins_if_it_is_as_exact_and_clearly_faster(others: dict[str, Result], wins: str) -> None:
    assert winner({"default": Result(10.0, 1.0, 1e-6), **others}, "default", 1e-5) == wins


@pytest.mark.jax
@pytest.mark.parametrize("hidden", [(), (9,)])
def test_a_hidden_output_that_flips_costs_no_variant_its_win(hidden: tuple[int, ...]) -> None:
    for error, wins in ((9e-4, bool(hidden)), (5e-3, False)):
        results = {DEFAULT: Result(10.0, 1.0, 1e-6), "unroll 4": Result(9.0, 1.0, error)}
        choice = chosen("jax-scan", Problem(784, 10, hidden), H200, results)
        assert getattr(choice, "variant", None) == ("unroll 4" if wins else DEFAULT)


def pretend(trial: Trial) -> Callable[[], Result]:
    """In another process, note what happens, and do what the variant's name says; `prepare_s` is the process."""
    log = Path(os.environ["TORCHINDUCTOR_CACHE_DIR"], "log")

    def act(variant: str, begin: str, end: str) -> None:
        with log.open("a", buffering=1) as file:
            file.write(f"{begin}\n")
            while variant.startswith("together") and log.read_text().split().count("builds") % 3:
                time.sleep(0.01)  # until all three build
            if variant == "hangs":
                time.sleep(1000)
            if variant == "raises":
                raise ValueError("no such option\nand more")
            if variant == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(0.5 if "slowly" in variant else 0.1)  # so that others, if they do not wait, come between
            file.write(f"{end}\n")

    def timed() -> Result:
        act(trial.variant.removesuffix(" when timed"), "times", "timed")
        return Result(1.0, os.getpid(), 0.0)

    if trial.variant == "chooses":
        for _ in range(2):  # the second time it has its turn
            await_turn()
    act(trial.variant, "builds", "built")
    return timed


GOOD = Trial("jax-scan", LOGISTIC, "good")


@pytest.fixture
def builders(tmp_path: Path) -> Iterator[list[Builder]]:
    with ExitStack() as stack:
        yield [stack.enter_context(closing(Builder(60.0, str(tmp_path), pretend))) for _ in range(3)]


def processes(answers: Sequence[tune_references.Answer]) -> list[int]:
    return [int(answer.prepare_s) for answer in answers if isinstance(answer, Result)]


def test_a_wave_builds_side_by_side_and_times_one_at_a_time(builders: list[Builder], tmp_path: Path) -> None:
    trials = [Trial("jax-scan", LOGISTIC, variant) for variant in ("together", "together, slowly", "together")]
    first, second = processes(wave(trials, builders)), processes(wave(trials, builders))
    assert first == second  # the same processes
    assert len(set(first)) == 3
    assert (tmp_path / "log").read_text().split() == 2 * [*["builds"] * 3, *["built"] * 3, *["times", "timed"] * 3]


def test_of_variants_that_time_kernels_while_they_are_built_one_does_at_a_time(
    builders: list[Builder], tmp_path: Path
) -> None:
    for _ in range(2):  # each gives its turn back
        wave([Trial("torch-graph", LOGISTIC, "chooses")] * 3, builders)
    assert (tmp_path / "log").read_text().split() == 2 * [*["builds", "built"] * 3, *["times", "timed"] * 3]


@pytest.mark.parametrize("when", ["", " when timed"])
@pytest.mark.parametrize(
    ("variant", "said"),
    [
        ("raises", f"ValueError: no such option ({Path(__file__).name}:LINE)"),
        ("killed", "its process ended with -9"),
        ("hangs", "stopped after 2 s"),
    ],
)
def test_a_trial_that_fails_costs_its_process_and_no_other_trial(
    builders: list[Builder], variant: str, said: str, when: str
) -> None:
    first = processes(wave([GOOD] * 3, builders))
    if variant == "hangs":
        builders[1]._seconds = 2.0
    left, answer, right = wave([GOOD, Trial("jax-scan", LOGISTIC, variant + when), GOOD], builders)
    builders[1]._seconds = 60.0
    assert re.sub(r":\d+\)", ":LINE)", str(answer)) == said
    assert processes([left, right]) == [first[0], first[2]]
    with pytest.raises(ProcessLookupError):
        os.kill(first[1], 0)
    again = processes(wave([GOOD] * 3, builders))
    assert [one == other for one, other in zip(again, first, strict=True)] == [True, False, True]


@pytest.mark.jax
@pytest.mark.parametrize(("stage", "error"), [("jax-scan", 1e-5), ("jax-scan-bf16", 0.1)])
def test_a_trial_times_a_variant_and_compares_it_with_float64(
    monkeypatch: pytest.MonkeyPatch, stage: str, error: float
) -> None:
    split = random_split(64 * 6 + 5, 784, 10)
    runs = tune_references.RUNS
    seconds = iter([1.0, 1.0, *[0.3] * runs, *[0.2] * runs, 1.0])  # other work slows the first timing

    def pretended(*arguments: Any, **named: Any) -> Any:
        return replace(timed_run(*arguments, **named), seconds=next(seconds))

    monkeypatch.setattr(tune_references, "_train", lambda: split)
    monkeypatch.setattr(tune_references, "timed_run", pretended)
    tune_references._oracle_epoch.cache_clear()
    result = built(Trial(stage, Problem(784, 10, (16,), batch_size=64, learning_rate=0.01), "unroll 4"))()
    tune_references._oracle_epoch.cache_clear()
    assert 0.0 < result.error < error
    assert result.step_us == pytest.approx(0.2 / 6 * 1e6)
    assert result.prepare_s > 0.0


@pytest.mark.jax
def test_each_wave_has_a_variant_of_every_network_and_its_winners_are_kept_at_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[list[str]] = []
    kept = []

    def fake(trials: Sequence[Trial], builders: Collection[Builder]) -> list[tune_references.Answer]:
        assert len(builders) == 2 == len(trials)
        kept.append([choice.variant for choice in choices.read()])
        asked.append([trial.variant for trial in trials])
        us = {"unroll 8": 5.0, DEFAULT: 9.0}
        return ["failed" if t.problem.hidden else Result(us.get(t.variant, 20.0), 1.0, 1e-6) for t in trials]

    monkeypatch.setattr(tune_references, "devices", lambda: [H200])
    monkeypatch.setattr(tune_references, "wave", fake)
    assert len(TUNED["jax-scan"].variants) == 12
    arguments = ["jax-scan", "--at-once", "2", "--network", "784-10/128", "--network", "784-256-10/8192"]
    assert main(arguments) == 0
    assert asked == [[name] * 2 for name in TUNED["jax-scan"].variants]
    assert kept[:3] == [[], [DEFAULT], ["unroll 8"]]
    (choice,) = choices.read()
    assert (choice.stage, choice.gpu, choice.hidden, choice.variant) == ("jax-scan", H200.name, (), "unroll 8")
    said = capsys.readouterr().out
    assert said.startswith("jax-scan         784-10/128                   unroll 16  ")
    assert "9.00 us  prepare   1.0 s  parameters 1.0e-06\n" in said
    assert "kept: unroll 8" in said
    assert "nothing new" in said
    assert main([*arguments, "--variant", "unroll 1"]) == 0  # named ones, beside the default
    assert asked[-2:] == [[DEFAULT] * 2, ["unroll 1"] * 2]
    assert choices.read() == [choice]  # which was not tried again


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["torch-grph"], f"stage 'torch-grph': has no variants; choose from {', '.join(TUNED)}"),
        (["--seconds", "0"], "--seconds 0: must be more than 0"),
        (["--at-once", "0"], "--at-once 0: must be at least 1"),
        ([], "no NVIDIA GPU here; the choices are of a GPU"),
    ],
)
def test_a_mistake_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    monkeypatch.setattr(tune_references, "devices", list)
    assert main(arguments) == 2
    assert capsys.readouterr().err.splitlines() == [f"tune_references: {said}"]
