"""A run keeps its order, as it was written down: `python -m tests.ladder.run.test_order` writes it down anew.

Read the diff: a process that begins elsewhere may run beside one that is timed.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from ladder.processes import worker_pool
from ladder.profile import nsys
from tests.ladder.harness import NUMPY
from tests.ladder.run.order import CPU_RUNG, Order, named

FOLDER = Path(__file__).with_name("orders")
COMPILES = "tests.planted:COMPILES"
Scenario = Callable[[Path, pytest.MonkeyPatch], Order]


def one_round(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Order:
    order = Order(monkeypatch)
    order.of(folder, NUMPY, CPU_RUNG, "tests.planted:NEEDY", profile=["stamps"], energy=True, curve_steps=4)
    return order


def three_rounds_one_disturbed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Order:
    order = Order(monkeypatch)
    order.disturbed = {("b.2", 0), ("b.2", 1)}
    order.of(folder, named("a"), named("b"), rounds=3, remeasure=2)
    return order


def precision(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Order:
    order = Order(monkeypatch)
    order.disturbed = {("a.4", 0)}
    order.of(folder, named("a"), rounds=2, precision=0.01, remeasure=1)
    return order


def budget(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Order:
    order = Order(monkeypatch)
    order.of(folder, named("a"), named("b"), named("c"), rounds=2, budget_s=8.0, budget_total_s=9.0)
    return order


def crash(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Order:
    order = Order(monkeypatch)
    order.crashes = {("a.1", 0), ("b.2", 0), ("b.2", 1)}
    order.of(folder, named("a"), named("b"), named("c"), rounds=2)
    return order


def at_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Order:
    order = Order(monkeypatch)
    order.crashes = {("b.1", 0)}
    monkeypatch.setattr("ladder.run.runner.cores_usable", lambda: 4)
    order.of(folder, named("a"), named("b"), named("c"), rounds=2, at_once=2, remeasure=2)
    return order


def resume(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Order:
    order = Order(monkeypatch)
    whole = order.of(folder, named("a"), named("b"), named("c"), rounds=2)
    a, b, c = whole.stages
    b = msgspec.structs.replace(b, processes=b.processes[:1])
    c = msgspec.structs.replace(c, status="failed", reason="wrong", timing=None, processes=c.processes[:1])
    known = msgspec.structs.replace(whole, stages=[a, b, c])
    order.lines.clear()
    order.of(folder, named("a"), named("b"), named("c"), known=known)
    return order


def under_nsys(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Order:
    order = Order(monkeypatch, "gpu")
    order.crashes = {("b.nsys", 0)}
    monkeypatch.setattr(nsys, "find", lambda: Path("nsys"))
    order.of(folder, named("a"), named("b"), named("c"), profile=["nsys"], nsys_stages=["a", "b"])
    return order


def without_nsys(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Order:
    order = Order(monkeypatch, "gpu")
    monkeypatch.setattr(nsys, "find", lambda: None)
    order.of(folder, named("a"), profile=["nsys"])
    return order


def on_a_gpu(folder: Path, monkeypatch: pytest.MonkeyPatch, rounds: int = 3) -> Order:
    """Stages prepare side by side, four at a time; two of five compile, ahead where the one round searches."""
    order = Order(monkeypatch, "gpu")
    machine = order.on_gpu(monkeypatch)
    monkeypatch.setattr(worker_pool, "cores_usable", lambda: 6)
    monkeypatch.setattr("ladder.run.bench.cores_usable", lambda: 16)
    monkeypatch.setattr(nsys, "find", lambda: Path("nsys"))
    monkeypatch.setenv("LADDER_CACHE_DIR", str(folder / "cache"))
    order.disturbed = {("b.2", 0)}
    stages = [
        *(named(name, COMPILES, needs=("cuda",)) for name in ("k", "l")),
        *(named(name, needs=("cuda",)) for name in ("a", "b", "c")),
        named("host"),
    ]
    order.of(
        folder, *stages, rounds=rounds, profile=["cupti", "nsys"], prepare_at_once=4, remeasure=1, environment=machine,
        tune_references=rounds == 1,
    )  # fmt: skip
    return order


def on_a_gpu_in_one_round(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Order:
    return on_a_gpu(folder, monkeypatch, rounds=1)


SCENARIOS: tuple[Scenario, ...] = (
    one_round, three_rounds_one_disturbed, precision, budget, crash, at_once, resume, under_nsys, without_nsys,
    on_a_gpu, on_a_gpu_in_one_round,
)  # fmt: skip


def test_trainers_on_a_few_batches_compile_ahead_on_a_gpu_where_timed_ones_do_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = Order(monkeypatch, "gpu")
    machine = order.on_gpu(monkeypatch)
    monkeypatch.setattr(worker_pool, "cores_usable", lambda: 6)
    monkeypatch.setattr("ladder.run.bench.cores_usable", lambda: 16)
    few = [named(name, "tests.planted:COMPILES_FIRST_UPDATES", needs=("cuda",)) for name in ("f", "g")]
    timed = [named(name, COMPILES, needs=("cuda",)) for name in ("k", "l")]
    order.of(tmp_path, *few, *timed, prepare_at_once=4, environment=machine)
    started = [line.split()[1] for line in order.lines if line.startswith("start") and line.endswith("compiles")]
    assert started == ["f.compiling", "g.compiling"]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_run_keeps_its_order(scenario: Scenario, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = scenario(tmp_path, monkeypatch).lines
    assert lines == (FOLDER / f"{scenario.__name__}.txt").read_text().splitlines()


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for each in SCENARIOS:
        with tempfile.TemporaryDirectory() as here, pytest.MonkeyPatch.context() as patch:
            text = "\n".join(each(Path(here), patch).lines) + "\n"
        (FOLDER / f"{each.__name__}.txt").write_text(text)
