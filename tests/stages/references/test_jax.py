"""What JAX compiles beside others, and where it waits."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from common import choice
from common.problem import Problem, initial_params
from common.trainer import WaitingTrainer
from ladder.measure.timing import timed_run
from stages.references import choices, jax_scan
from stages.references.choices import Choice
from stages.references.jax_scan import JaxScanTrainer, untuned
from tests.ladder.gpus import H200
from tests.stages.engine.test_step import random_split

pytestmark = pytest.mark.jax
PROBLEM = Problem(inputs=49, classes=10, batch_size=4, metrics_every=2)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where JAX, which takes this machine for one with a GPU, keeps what it compiles, however short that takes."""
    import jax
    from jax.experimental.compilation_cache import compilation_cache

    monkeypatch.setattr(jax, "devices", lambda: [SimpleNamespace(platform="gpu")])
    monkeypatch.setattr(jax_scan, "cache_folder", lambda name: tmp_path / name)
    names = ("jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs")
    before = {name: getattr(jax.config, name) for name in names}
    compilation_cache.reset_cache()
    jax.config.update(names[1], 0.0)
    yield tmp_path / "jax"
    for name, value in before.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()


def train(batches: int) -> None:
    trainer = JaxScanTrainer(PROBLEM, random_split(4 * batches, 49, 10))
    trainer.run_epoch(0)
    trainer.close()


def entries(folder: Path) -> set[str]:
    """Compiled epochs; of each there is one without and one with totals."""
    return {path.name for path in folder.glob("jit_epoch-*-cache")}


def test_the_first_updates_are_found_again_and_no_timed_epoch_finds_them(cache: Path) -> None:
    import jax

    hits: list[str] = []
    jax.monitoring.register_event_listener(
        lambda event, **_: hits.append(event) if event.endswith("compilation_cache/cache_hits") else None
    )
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 100.0)
    with untuned():
        train(3)
        assert jax.config.jax_persistent_cache_min_compile_time_secs == 0.0
    assert jax.config.jax_persistent_cache_min_compile_time_secs == 100.0
    kept = entries(cache)
    assert len(kept) == 2
    hits.clear()
    train(3)
    assert hits == []
    with untuned():
        train(3)
    assert len(hits) >= 2
    assert entries(cache) == kept
    jax.monitoring.clear_event_listeners()


def test_where_it_may_search_the_variant_is_the_choice_for_the_gpu(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unrolled: list[int] = []
    epoch = jax_scan.epoch_of

    def seen(*given: Any) -> Any:
        unrolled.append(given[-1])
        return epoch(*given)

    monkeypatch.setattr(jax_scan, "epoch_of", seen)
    monkeypatch.setattr(choices, "FILE", cache.with_name("choices.json"))
    monkeypatch.setattr(choices, "devices", lambda: [H200])

    def built() -> JaxScanTrainer:
        return JaxScanTrainer(PROBLEM, random_split(8, 49, 10))

    assert built().detail == choices.MAY_GAIN
    monkeypatch.setattr(choice, "_searches", True)
    choices.keep([Choice("jax-scan", H200.name, H200.sm, 49, (), 10, 4, "unroll 8, command buffers", 1.0, 2.0, "jax")])
    assert built().detail == "unroll 8, command buffers"
    choices.keep([Choice("jax-scan", H200.name, H200.sm, 49, (), 10, 4, jax_scan.DEFAULT, 1.0, 1.0, "jax")])
    assert built().detail == ""
    with untuned():
        built()
    assert unrolled == [16, 8, 16, 1]


def test_on_a_cpu_nothing_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jax_scan, "cache_folder", lambda name: tmp_path / name)
    with untuned():
        train(1)
    assert list(tmp_path.iterdir()) == []


def test_a_loop_leaves_few_steps_behind_it() -> None:
    at_most_16 = {468: 13, 469: 13, 256: 16, 117: 13, 29: 14, 17: 16, 7: 7, 1: 1}
    assert {steps: jax_scan.unrolled(steps, 16) for steps in at_most_16} == at_most_16
    assert [jax_scan.unrolled(29, most) for most in (1, 4, 8)] == [1, 4, 7]


# JAX waits at the end of a run, where its metrics are read, and nowhere else.


STEPS = 30
SHORT = Problem(784, 10, (512, 512), batch_size=64, epochs=4, metrics_every=4)  # an epoch takes a CPU 0.1 s or more


@pytest.fixture
def trainer() -> JaxScanTrainer:
    built = jax_scan.STAGE.build(SHORT, random_split(STEPS * 64, 784, 10))
    assert isinstance(built, JaxScanTrainer)
    assert isinstance(built, WaitingTrainer)
    return built


def finished(trainer: JaxScanTrainer) -> bool:
    return all(tensor.is_ready() for layer in trainer._layers for tensor in layer)


def test_an_epoch_without_metrics_does_not_wait(trainer: JaxScanTrainer) -> None:
    trainer.load_params(initial_params(SHORT, 0))
    for epoch in range(2):
        trainer.run_epoch(epoch)
        assert not finished(trainer)
        assert trainer.last_metrics() is None
    trainer.wait()
    assert finished(trainer)
    trainer.run_epoch(3)
    assert finished(trainer)
    assert trainer.last_metrics() is not None


def test_a_run_waits_once_and_its_time_contains_the_wait(
    trainer: JaxScanTrainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    log: list[str] = []
    wait, run_epoch = trainer._jax.block_until_ready, trainer.run_epoch

    def counted(tensors: Any) -> Any:
        log.append("wait")
        return wait(tensors)

    def clock() -> float:
        log.append("clock, finished" if finished(trainer) else "clock, under way")
        return time.perf_counter()

    def logged(epoch: int) -> None:
        log.append(f"epoch {epoch}")
        run_epoch(epoch)

    monkeypatch.setattr(trainer._jax, "block_until_ready", counted)
    monkeypatch.setattr(trainer, "run_epoch", logged)
    # A fence that sees nothing, as the driver's may where XLA has not launched yet.
    timed_run(trainer, initial_params(SHORT, 0), 3, fence=lambda: None, clock=clock)
    loading = log.index("epoch 0")
    assert log[loading:] == ["epoch 0", "epoch 1", "epoch 2", "wait", "clock, finished"]
    assert log[loading - 1] == "clock, finished"
