"""The model of expected times, and drawn networks that it wants to know: what tools write and say of them."""

from __future__ import annotations

import subprocess
from collections import Counter
from pathlib import Path

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace

from common.problem import Problem
from ladder.options.commands import Advise
from ladder.options.run_options import RunOptions
from ladder.records.run import load
from ladder.run.expected import RANGED, Costs, expectations, recorded_costs
from ladder.run.outlook import outlooks
from tests.reports.sample import unprofiled_results
from tools.drawn_networks import CLOSE, drawn, main, table_of, write_images
from tools.fit_costs import (
    PAGE,
    Points,
    fitted_costs,
    is_alike,
    networks_of,
    nine_in_ten,
    smallest_log_errors,
    verdicts,
    with_errors,
)


@pytest.fixture(scope="module")
def fit() -> tuple[Costs, Points]:
    return fitted_costs()


def test_the_file_is_what_the_recorded_runs_give(fit: tuple[Costs, Points]) -> None:
    found, kept = (msgspec.to_builtins(one) for one in (fit[0], recorded_costs()))
    rungs, kept_rungs = found.pop("rungs"), kept.pop("rungs")
    assert (found, list(rungs)) == (kept, list(kept_rungs)), "run python -m tools.fit_costs"
    for name, rung in rungs.items():
        assert rung.pop("us") == pytest.approx(kept_rungs[name].pop("us"), rel=0.01, abs=2e-4)
        for error in ("error", "median", "most", "again"):
            assert rung.pop(error) == pytest.approx(kept_rungs[name].pop(error), abs=2e-3)
        assert rung == kept_rungs[name]


def test_planted_terms_are_found_and_one_that_costs_nothing_is_0() -> None:
    random = np.random.default_rng(1)
    sizes = np.column_stack([np.ones(40), *(10 ** random.uniform(-1, 3, 40) for _ in range(3))])
    planted = np.array([12.0, 3.0, 0.25, 0.0])
    assert smallest_log_errors(sizes, sizes @ planted) == pytest.approx(planted, abs=1e-6)
    noisy = smallest_log_errors(sizes, sizes @ planted * np.exp(random.normal(0, 0.1, 40)))
    assert noisy == pytest.approx(planted, rel=0.15, abs=0.05)


def test_nine_in_ten_of_one_more_network_stay_below_the_error_that_is_told() -> None:
    assert [nine_in_ten(list(range(count, 0, -1))) for count in (1, 8, RANGED, 18, 19, 28, 29)] == [
        1,
        8,
        9,
        18,
        18,
        27,
        27,
    ]
    random = np.random.default_rng(2)
    for count in (RANGED, 20, 35):
        draws = random.exponential(size=(4000, count + 1))
        assert np.mean([last <= nine_in_ten(list(errors)) for *errors, last in draws]) == pytest.approx(0.91, abs=0.02)


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        (Problem(784, 10, (256,)), Problem(784, 10, (256,), 192), True),
        (Problem(784, 10, (256,)), Problem(784, 10, (256,), 256), False),
        (Problem(784, 10, (256,)), Problem(200, 10, (256,)), False),
        (Problem(784, 10, (256,) * 7), Problem(784, 10, (256,) * 8), True),
        (Problem(784, 10, (256,)), Problem(784, 10, (512,)), False),
        (Problem(784, 10), Problem(784, 10, (8,)), False),  # two layers, not one
    ],
)
def test_networks_alike_are_left_out_together(one: Problem, other: Problem, alike: bool) -> None:
    assert is_alike(one, other) == is_alike(other, one) == alike


def test_no_remark_on_a_network_left_out_is_wrong(fit: tuple[Costs, Points]) -> None:
    model, points = fit
    found = Counter(verdict for network in networks_of(points) for verdict in verdicts(model, points, network))
    assert found["right"] > found["wrong"] == 0
    text = PAGE.read_text(encoding="utf-8")
    assert with_errors(text, model, points) == text, "run python -m tools.fit_costs"


@pytest.mark.parametrize(
    ("network", "rung", "other", "measured", "told"),
    [
        (Problem(784, 10, (512, 512), 256), "last-layer", "streamed", 56.9 / 53.1, False),  # 7 %, within the error
        (Problem(784, 10, (), 1000), "persistent-grid", "cuda-graph", 45.9 / 28.1, True),
    ],
)
def test_it_foretells_losses_that_it_was_not_fitted_to(
    fit: tuple[Costs, Points], network: Problem, rung: str, other: str, measured: float, told: bool
) -> None:
    assert all(network not in fit[1][name] for name in (rung, other))
    found = expectations(network, network.steps(60_000))
    assert measured > 1.05
    assert found[rung].us > found[other].us
    assert bool(found[rung].remark) == told


# Networks drawn by a seed: which they are, how one is timed, and what the table says of planted times.


def test_a_seed_draws_the_same_networks() -> None:
    first, *_, last = drawn(80)
    assert (first.inputs, first.hidden, first.classes, first.batch_size) == (119, (18, 19, 360, 343), 18, 2019)
    assert (last.inputs, last.hidden, last.classes, last.batch_size) == (139, (21,), 3, 256)
    assert drawn(81) != drawn(80)


def test_images_of_a_class_share_its_pattern(tmp_path: Path) -> None:
    write_images(tmp_path / "own.npz", problem := drawn(80)[16], 16)
    arrays = np.load(tmp_path / "own.npz")
    for part in ("train", "test"):
        images, labels = arrays[f"x_{part}"], arrays[f"y_{part}"]
        assert images.shape == (len(labels), problem.inputs)
        shown = [(images[labels == label] > 0).any(0).mean() for label in range(problem.classes)]
        assert 0.1 < min(shown) <= max(shown) < 0.6


@pytest.mark.slow
def test_a_network_is_timed_once_and_its_record_names_the_seed(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    short = ["--max-steps=4", "--epochs=2", "--rounds=1", "--repeats=1", "--remeasure=0", "--profile=none"]
    asked = [str(tmp_path), "--seed", "80", "--networks", "16", "--stages", "cpu-fused-head,numpy", *short]
    assert main(asked) == 0
    run = load(tmp_path / "seed-80-network-16")
    assert run.problem.seed == 80
    assert (run.problem.inputs, run.problem.hidden, run.problem.classes, run.problem.batch_size) == (73, [18], 13, 357)
    assert capfd.readouterr().out.endswith(f"{table_of([run])}\n")
    monkeypatch.setattr(subprocess, "call", lambda *_, **__: pytest.fail("timed again"))
    assert main(asked) == 0


def test_the_table_tells_leads_and_how_right_the_model_was() -> None:
    run = unprofiled_results()  # of 784-256-10
    names = {"jax-scan": "jax-scan", "async": "grid-bf16", "cublas": "cluster-fp16"}
    asked = Advise(options=RunOptions(hidden=(256,)))
    expected = {row.name: row for row in outlooks(asked).stages}
    times = {
        "jax-scan": 40.0,
        "grid-bf16": expected["grid-bf16"].us,
        "cluster-fp16": 2 * expected["cluster-fp16"].high_us,
    }
    stages = [
        replace(stage, name=name, timing=replace(stage.timing, step_us=times[name]))
        for stage in run.stages
        if (name := names.get(stage.name)) and stage.timing
    ]
    crashed = [stage for stage in run.stages if stage.status == "crashed"]
    fastest, chosen = times["grid-bf16"], times["cluster-fp16"] / times["grid-bf16"]
    *_, row, _, sums = table_of([replace(run, stages=[*stages, *crashed])]).splitlines()
    assert chosen > CLOSE
    rungs = f"`grid-bf16` {fastest:.2f} | `cluster-fp16` {chosen:.2f}x"
    assert row.startswith(f"| 784-256-10, 128 | {rungs} | `jax-scan` 40.00 | {40 / fastest:.2f}x |")
    assert f"`cluster-fp16` {times['cluster-fp16'] / expected['cluster-fp16'].us:.2f}" in row
    assert row.endswith("| `cuda-graph` |")
    lead = f"lead {40 / fastest:.2f}x in the median, {40 / fastest:.2f}x at least"
    assert sums.startswith(f"1 networks of seed 0: {lead}; the expected rung is at most {CLOSE}x the fastest in 0;")
