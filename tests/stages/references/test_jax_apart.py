"""What JAX compiles beside others: without tuning, and so found by the first updates alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from common import choice
from common.problem import Problem
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
