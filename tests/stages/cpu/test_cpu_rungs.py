"""The CPU rungs against the float64 oracle, and their threads at work."""

from __future__ import annotations

import itertools
import random
import subprocess
import sys
import time
from collections.abc import Callable
from types import ModuleType

import numpy as np
import pytest

pytest.importorskip("numba", reason="Numba is not installed")
pytest.importorskip("scipy", reason="SciPy is not installed")

from common.cpu import host
from common.cpu.host import BoundCall
from common.data.dataset import Split
from common.oracle import Oracle
from common.problem import Params, Problem, initial_params, network_run
from stages.cpu import cores, fleet, resident
from stages.registry import load_all

RUNGS = {name: entry.stage for name, entry in load_all().items() if entry.stage.group == "cpu"}
ALONE = [name for name, stage in RUNGS.items() if not stage.is_fleet]
NETWORKS = [
    Problem(784, 10, metrics_every=1),
    Problem(784, 10, (20,), batch_size=31, metrics_every=1),
    Problem(30, 3, (40, 7), batch_size=1, metrics_every=1),
    Problem(49, 16, batch_size=9, metrics_every=1),
    Problem(50, 17, (5,), batch_size=12, metrics_every=1),
]
THREADED = ["cpu-cores", "cpu-resident", "cpu-wide-tiles"]
NUMBERS_OF_THREADS = [2, 5]  # five share 31 images, nine, and one unevenly
LATE_EPOCHS = 3_000  # some 2 s for a rung on two busy cores, most of it waiting


def split(problem: Problem, steps: int = 5) -> Split:
    rng = np.random.default_rng(1)
    count = (steps + 1) * problem.batch_size - 1  # some are left over
    pixels = rng.integers(0, 256, (count, problem.inputs)) * (rng.random((count, problem.inputs)) < 0.3)
    return Split(pixels.astype(np.uint8), rng.integers(0, problem.classes, count, dtype=np.uint8))


def start_threads(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let rungs start this many, whatever the cores here."""
    for module in (cores, resident):
        monkeypatch.setattr(module, "usable_cores", lambda: threads)


def trained(name: str, problem: Problem, epochs: int = 2) -> tuple[Params, list[tuple[float, float]]]:
    trainer = RUNGS[name].build(problem, split(problem))
    trainer.load_params(initial_params(problem, 0))
    metrics = []
    for epoch in range(epochs):
        trainer.run_epoch(epoch)
        seen = trainer.last_metrics()
        assert seen is not None
        metrics.append((seen.mean_loss, seen.accuracy))
    params = trainer.read_params()
    trainer.close()
    return params, metrics


@pytest.mark.parametrize("problem", NETWORKS, ids=lambda p: f"{p.inputs}-{p.hidden}-{p.classes}x{p.batch_size}")
@pytest.mark.parametrize(
    ("name", "threads"),
    [(name, threads) for name in ALONE for threads in (NUMBERS_OF_THREADS if name in THREADED else [1])],
)
def test_two_epochs_agree_with_float64(
    name: str, threads: int, problem: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    start_threads(threads, monkeypatch)
    if RUNGS[name].misfit(problem, 5):
        pytest.skip(RUNGS[name].misfit(problem, 5) or "")
    compare_two_epochs(name, problem)


@pytest.mark.parametrize("name", ALONE)
def test_the_smallest_networks_agree_with_float64(name: str) -> None:
    """A matrix of one row or column has strides that say nothing, and libraries refuse some of them."""
    networks = [(), (1,), (2,), (3,), (17,), (1, 2)]
    for hidden, batch_size, inputs in itertools.product(networks, (1, 2, 3), (1, 5)):
        problem = Problem(inputs, 2, hidden, batch_size=batch_size, metrics_every=1)
        if not RUNGS[name].misfit(problem, 5):
            compare_two_epochs(name, problem)


def compare_two_epochs(name: str, problem: Problem) -> None:
    images = split(problem).first(5 * problem.batch_size)
    oracle = Oracle(problem, initial_params(problem, 0))
    epochs = [oracle.run_epoch(images.images, images.labels) for _ in range(2)]
    params, metrics = trained(name, problem)
    for own, true in zip((*params.weights, *params.biases), (*oracle.weights, *oracle.biases), strict=True):
        np.testing.assert_allclose(own, true, rtol=0, atol=3e-6 * max(1.0, float(np.abs(true).max())))
    for (loss, accuracy), epoch in zip(metrics, epochs, strict=True):
        assert loss == pytest.approx(epoch.mean_loss, rel=3e-6)
        assert accuracy == pytest.approx(epoch.accuracy, abs=1e-9)


@pytest.mark.parametrize("threads", NUMBERS_OF_THREADS)
@pytest.mark.parametrize("name", THREADED)
def test_any_number_of_threads_repeats_bit_for_bit(name: str, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    start_threads(threads, monkeypatch)
    problem = next(network for network in NETWORKS if not RUNGS[name].misfit(network, 5))
    first, second = (trained(name, problem)[0] for _ in range(2))
    for parameter, other in zip((*first.weights, *first.biases), (*second.weights, *second.biases), strict=True):
        np.testing.assert_array_equal(parameter, other)


@pytest.mark.parametrize(("name", "hidden"), [("cpu-resident", ()), ("cpu-wide-tiles", (17,))])
def test_a_step_needs_no_thread_to_be_on_time(
    name: str, hidden: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Threads that begin late, more of them than two cores: no epoch of many short ones waits for ever."""
    late = random.Random(3)
    begin: Callable[[host.Replay], None] = host.Replay.__call__

    def delayed(self: host.Replay) -> None:
        if late.random() < 0.02:
            time.sleep(late.random() / 1000)
        begin(self)

    monkeypatch.setattr(host.Replay, "__call__", delayed)
    start_threads(3, monkeypatch)
    problem = Problem(49, 10, hidden, batch_size=4, metrics_every=1000)
    trainer = RUNGS[name].build(problem, split(problem, 3))
    trainer.load_params(initial_params(problem, 0))
    for epoch in range(LATE_EPOCHS):
        trainer.run_epoch(epoch)
    assert np.isfinite(trainer.read_params().weights[0]).all()
    trainer.close()


def test_no_kernel_leaves_its_arrays() -> None:
    """Numba checks every index when it is asked to; a kernel's error shows on stderr."""
    code = (
        "from tests.stages.cpu.test_cpu_rungs import NETWORKS, RUNGS, trained\n"
        "for name in RUNGS:\n"
        "    for problem in NETWORKS:\n"
        "        if not RUNGS[name].misfit(problem, 5): trained(name, problem)\n"
    )
    environment = {"NUMBA_BOUNDSCHECK": "1", "NUMBA_DISABLE_JIT": "0", "PATH": "", "NUMBA_CACHE_DIR": "/dev/null"}
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    assert (run.returncode, run.stderr) == (0, "")


@pytest.mark.parametrize(("threads", "hidden"), [(1, (20,)), (2, ()), (3, (20,))])
def test_networks_of_a_fleet_have_the_bits_that_each_has_alone(
    threads: int, hidden: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet, "usable_cores", lambda: threads)
    problem = Problem(50, 7, hidden, batch_size=12, networks=4, learning_rates=(0.1, 0.2, 0.3, 0.4), metrics_every=1)
    trainer = RUNGS["cpu-fleet"].build(problem, split(problem))
    trainer.load_params(initial_params(problem, 0))
    trainer.run_epoch(0)
    seen = trainer.last_metrics()
    assert seen is not None
    for network, own in enumerate(trainer.read_params().apart()):
        alone = problem.alone(network)
        single = RUNGS["cpu-bytes"].build(alone, split(problem))
        single.load_params(initial_params(alone, network_run(0, network)))
        single.run_epoch(0)
        assert seen.networks[network] == single.last_metrics()
        for name, tensor in single.read_params().tensors().items():
            np.testing.assert_array_equal(own.tensors()[name], tensor)


AROUND = 64  # numbers before and after an array, which are NaN
SIZES = [(1, 1, 1), (2, 6, 8), (3, 7, 9), (7, 33, 5), (1, 16, 1), (13, 41, 17), (9, 24, 48)]


class Guarded:
    """A matrix among NaN, which a read outside would spread and a write outside would change."""

    def __init__(self, rows: int, columns: int, gap: int) -> None:
        random = np.random.default_rng(rows + columns)
        self._memory = np.full(2 * AROUND + rows * (columns + gap), np.nan, np.float32)
        self.ld = columns + gap
        self.inside = self._memory[AROUND : AROUND + rows * self.ld].reshape(rows, self.ld)[:, :columns]
        self.inside[...] = random.random((rows, columns)) - 0.5
        self.whole = self._memory[AROUND:]

    def only_inside(self) -> bool:
        """Whether all that lies outside is still NaN, and nothing inside."""
        numbers = int(np.isfinite(self._memory).sum())
        return numbers == self.inside.size and bool(np.isfinite(self.inside).all())


@pytest.fixture(scope="module")
def wide() -> ModuleType:
    """The kernels, which Numba compiles on import: only in the process that tests them."""
    from stages.cpu.kernels import wide

    return wide


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize(("adds", "gap"), [(False, 3), (True, 0)])
@pytest.mark.parametrize("by_rows", [False, True])
def test_the_outer_product(size: tuple[int, int, int], gap: int, adds: bool, by_rows: bool, wide: ModuleType) -> None:
    rows, columns, terms = size
    a = Guarded(rows, terms, gap) if by_rows else Guarded(terms, rows, gap)
    left, placed = (a.inside, (a.ld, 1)) if by_rows else (a.inside.T, (1, a.ld))
    b, out = Guarded(terms, columns, gap), Guarded(rows, columns, gap)
    expected = -0.5 * left.astype(np.float64) @ b.inside + (out.inside if adds else 0)
    if not adds:
        out.inside[...] = np.nan
    sizes = (rows, columns, terms, -0.5, int(adds))
    BoundCall(wide.outer_product, (a.whole, *placed, b.whole, b.ld, out.whole, out.ld, *sizes))()
    np.testing.assert_allclose(out.inside, expected, rtol=0, atol=1e-6 * terms)
    assert out.only_inside()


@pytest.mark.parametrize("gap", [0, 3])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_the_inner_product(size: tuple[int, int, int], gap: int, wide: ModuleType) -> None:
    rows, columns, terms = size
    a, b, out = Guarded(rows, terms, gap), Guarded(columns, terms, gap), Guarded(rows, columns, gap)
    expected = a.inside.astype(np.float64) @ b.inside.T
    out.inside[...] = np.nan
    BoundCall(wide.inner_product, (a.whole, a.ld, b.whole, b.ld, out.whole, out.ld, *size))()
    np.testing.assert_allclose(out.inside, expected, rtol=0, atol=1e-6 * terms)
    assert out.only_inside()
