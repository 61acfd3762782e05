"""Which stages a run has: the rule for rungs that may be the fastest."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from common.problem import Problem
from ladder.options.run_options import RunOptions
from ladder.records.run import Results, load
from ladder.run.entries import CLASSES, CLOSE, INPUTS, contenders, stages_of
from ladder.run.expected import expectations
from ladder.study.study_file import point_options, read_study
from stages.registry import load_all

ROOT = Path(__file__).parents[3]
RUNS = sorted(file.parent for file in (ROOT / "results" / "reference" / "h200").rglob("results.json.gz"))
ENTRIES = load_all()
WIDE = Problem(INPUTS, CLASSES, hidden=(1024,) * 3, batch_size=32)


def fastest(run: Results) -> set[str]:
    """The fastest rung beyond the classic ones of each class; none of a run with one of them or two."""
    us = {stage.name: stage.timing.step_us for stage in run.stages if stage.timing and stage.name in ENTRIES}
    rungs = [ENTRIES[name].stage for name in us if ENTRIES[name].stage.group == "beyond"]
    classes = ([rung for rung in rungs if rung.precision == "float32"], rungs)
    return {min(each, key=lambda rung: us[rung.name]).name for each in classes if len(each) > 2}


@pytest.mark.parametrize("folder", RUNS, ids=lambda folder: str(folder.relative_to(RUNS[0].parents[0])))
def test_the_fastest_recorded_rungs_are_contenders(folder: Path) -> None:
    run = load(folder)
    own = run.problem
    if own.networks == own.gpus == 1:
        problem = Problem(own.inputs, own.classes, tuple(own.hidden), own.batch_size)
        steps = next((stage.timing.steps_per_epoch for stage in run.stages if stage.timing), 1)
        found, expected = contenders(problem, steps), expectations(problem, steps)
        newer = {*found} & expected.keys() - {each.name for each in run.stages if each.timing}
        least = min((expected[name].us for name in newer), default=math.inf)
        assert all(expected[name].us > CLOSE * least for name in fastest(run) - {*found})  # of a rung that is newer


def test_contenders_fit_and_are_not_expected_far_behind() -> None:
    found = contenders(WIDE, 128)
    assert {"grid-messages", "grid-messages-fp16", "planes-dependent"} <= set(found)  # the last has no model
    assert not {"persistent-cluster", "cluster-fp16"} & set(found)  # do not fit
    assert not {"cuda-graph", "fused-bias", "bf16", "grid-bf16"} & set(found)  # classic, or far slower by the model
    assert found == [name for name in ENTRIES if name in found]


def test_contenders_are_a_word_beside_others() -> None:
    options = RunOptions(stages=("jax-scan", "contenders", "grid-bf16"), hidden=(1024,) * 3, batch_size=32)
    names = [entry.stage.name for entry in stages_of(options, ENTRIES)]
    assert names == [name for name in ENTRIES if name in {"jax-scan", "grid-bf16", *contenders(WIDE, 1875)}]
    assert "contenders" not in ENTRIES


@pytest.mark.parametrize("study", ["hidden-size", "depth", "batch-size", "cpp-mlp"])
def test_studies_with_leads_time_every_contender(study: str) -> None:
    for point in read_study(ROOT / "experiments" / f"{study}.toml", "", "").points:
        options = RunOptions(**point_options(point))
        steps = min(options.problem(INPUTS, CLASSES).steps(60_000), options.max_steps or 60_000)
        names = {entry.stage.name for entry in stages_of(options, ENTRIES)}
        assert set(contenders(options.problem(INPUTS, CLASSES), steps)) <= names, point.name
