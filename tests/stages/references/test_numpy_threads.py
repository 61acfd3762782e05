"""How many threads the NumPy reference gives its BLAS."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from common.blas import blas_threads, limit_blas_threads
from stages.references import numpy_cpu, thread_trials
from tests.ladder.harness import small_dataset, small_problem

MOST = blas_threads() or 0


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    """All threads, whatever other tests of this process have left, and leave."""
    limit_blas_threads(MOST)
    numpy_cpu._quickest.cache_clear()
    yield
    limit_blas_threads(MOST)
    numpy_cpu._quickest.cache_clear()


@pytest.mark.skipif(MOST < 2, reason="NumPy's BLAS has one thread here")
@pytest.mark.parametrize("quickest", [1, MOST])
def test_the_number_that_was_quickest_is_what_all_trainers_have(quickest: int, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[int | None] = []

    def steps_s(trainer: numpy_cpu.NumpyTrainer, steps: int) -> list[float]:
        trainer.run_epoch(0)
        tried.append(blas_threads())
        lucky = len(tried) <= MOST  # in the first turns
        took = [9.0 if lucky else 1.0, 1.5] if tried[-1] == quickest else [0.5 if lucky else 2.0, 2.0]
        return [milliseconds * 1e-3 for milliseconds in took]

    monkeypatch.setattr(numpy_cpu, "epoch_steps_s", steps_s)
    trainer = numpy_cpu.STAGE.build(small_problem(), small_dataset().train)
    assert tried[0] == 1
    assert tried[-1] == MOST
    assert tried == sorted(set(tried), key=lambda count: count or 0) * thread_trials.TRIAL_TURNS
    assert blas_threads() == quickest
    assert f", {quickest} thread" in trainer.detail
    count = len(tried)
    numpy_cpu.STAGE.build(small_problem(), small_dataset().train)  # as for the first updates
    assert len(tried) == count
    assert blas_threads() == quickest


@pytest.mark.skipif(MOST < 2, reason="NumPy's BLAS has one thread here")
@pytest.mark.parametrize(("share", "most"), [(0.04, True), (0.02, False)])
def test_fewer_threads_win_a_tie(share: float, most: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = {1: 1e-3}
    monkeypatch.setattr(
        numpy_cpu, "epoch_steps_s", lambda trainer, steps: [seconds.get(blas_threads() or 0, 1e-3 / (1 + share))] * 2
    )
    numpy_cpu.STAGE.build(small_problem(), small_dataset().train)
    assert blas_threads() == (MOST if most else 1)


def test_a_step_of_a_wide_network_is_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[int | None] = []

    def steps_s(trainer: numpy_cpu.NumpyTrainer, steps: int) -> list[float]:
        tried.append(blas_threads())
        return [10.0 * thread_trials.TRIAL_S / len(tried)]

    monkeypatch.setattr(numpy_cpu, "epoch_steps_s", steps_s)
    numpy_cpu.STAGE.build(small_problem(), small_dataset().train)
    assert len(tried) == len(set(tried))
    assert blas_threads() == MOST


def test_without_threadpoolctl_the_threads_are_what_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numpy_cpu, "blas_threads", lambda: None)
    assert numpy_cpu.STAGE.build(small_problem(), small_dataset().train).detail.startswith("CPU, ")
