"""Allocator calls of a new trainer, until the end of its first epoch, and epochs that are run for a profile."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from common.problem import Params
from ladder.measure.measurement import first_calls
from ladder.measure.profiled import OwnProfile, Sample
from ladder.profile import cupti
from ladder.records.profile import FirstCalls
from stages.registry import load_all
from tests.ladder.harness import small_dataset, small_problem
from tests.ladder.measure.test_timing import FakeTrainer


def test_allocator_calls_are_counted_while_a_separate_trainer_is_built_and_in_its_first_epoch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done: list[str] = []

    class Trainer:
        def load_params(self, params: Params) -> None:
            done.append("load_params")

        def run_epoch(self, epoch: int) -> None:
            done.append(f"epoch {epoch}")

        def close(self) -> None:
            done.append("close")

    def record_calls(*parts: Callable[[], None]) -> list[Counter[str]]:
        counted = []
        for part in parts:
            done.append("|")
            part()
            counted.append(Counter({"cudaMalloc": len(done), "cudaFreeAsync": 1, "cuLaunchKernel": 9}))
        return counted

    def build(*_: object) -> Any:
        done.append("build")
        return Trainer()

    monkeypatch.setattr(cupti, "record_calls", record_calls)
    stage = replace(load_all()["alloc-pool"].stage, build=build)
    job: Any = SimpleNamespace(problem=small_problem(), round=0)
    found = first_calls(stage, job, small_dataset().train)
    assert done == ["|", "build", "load_params", "|", "epoch 0", "close"]
    assert found == FirstCalls({"cudaFreeAsync": 1, "cudaMalloc": 3}, {"cudaFreeAsync": 1, "cudaMalloc": 5})


class Waiting(FakeTrainer):
    def wait(self) -> None:
        self.log.append("wait")


def test_each_epoch_of_a_profile_ends_on_the_device() -> None:
    for trainer, between in ((FakeTrainer(), []), (Waiting(), ["wait"])):
        OwnProfile(trainer, Sample((3, 4), (0.5, 0.5)), trainer.fence).warm_up()
        assert trainer.log == ["epoch 3", *between, "fence", "epoch 4", *between, "fence"]
