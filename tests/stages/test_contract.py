"""Every stage that runs without a GPU keeps the contract of a trainer."""

from __future__ import annotations

from dataclasses import replace

import pytest

from common.problem import Problem
from ladder.machine.environment import missing
from stages.engine.recipe import Recipe
from stages.engine.stage import Stage
from stages.engine.step import RecipeTrainer
from stages.references import torch_threads
from stages.references.numpy_cpu import NumpyTrainer
from stages.registry import load_all
from tests.stages.contract import trainer_contract
from tests.stages.engine.test_step import NumpyLastLayerHead
from tests.stages.numpy_parts import RECIPE, HostDevice

# Fleets, and what compiles for minutes or trains on several GPUs, have tests of their own.
STAGES = [
    stage
    for stage in (entry.stage for entry in load_all().values())
    if not {"cuda", "gpu", "torch-cuda", "c++"} & {*stage.needs} and not stage.is_fleet and not stage.takes_gpus
]
SIZES = [((), 7), ((33,), 16), ((17, 5, 9), 31), ((8,), 1)]


@pytest.mark.parametrize(("hidden", "batch"), SIZES, ids=str)
@pytest.mark.parametrize("stage", STAGES, ids=lambda stage: stage.name)
def test_every_trainer_keeps_the_contract(
    stage: Stage, hidden: tuple[int, ...], batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch_threads, "thread_counts", lambda: (1,))  # no trials, which take longer than this
    problem = Problem(49, 10, hidden, batch_size=batch, metrics_every=1)
    if reason := missing(stage.needs) or stage.misfit(problem, 3):
        pytest.skip(reason)
    trainer_contract(stage, problem, stage.build)


@pytest.mark.parametrize(
    ("recipe", "hidden"), [(RECIPE, ()), (RECIPE, (5, 4)), (replace(RECIPE, head=NumpyLastLayerHead), (5, 4))]
)
def test_a_step_of_numpy_parts_keeps_it_with_its_last_layer(recipe: Recipe, hidden: tuple[int, ...]) -> None:
    problem = Problem(13, 3, hidden, batch_size=8, metrics_every=1)
    stage = Stage("parts", "Parts", "ladder", "float32", (), NumpyTrainer, recipe=recipe)
    trainer_contract(stage, problem, lambda problem, train: RecipeTrainer(recipe, problem, train, HostDevice()))
