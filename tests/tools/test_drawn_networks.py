"""Networks drawn by a seed: which they are, how one is timed, and what the table says of planted times."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from ladder.options.commands import Advise
from ladder.options.run_options import RunOptions
from ladder.records.run import load
from ladder.run.outlook import outlooks
from tests.reports.sample import unprofiled_results
from tools.drawn_networks import CLOSE, drawn, main, table_of, write_images


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
