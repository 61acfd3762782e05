"""Launch shapes: each agrees with the product's double; sweeps are measured, kept and chosen from."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from common.cuda.compile import compile_cubin
from common.problem import Problem
from stages.classic import r1_naive
from stages.engine.step import RecipeTrainer
from stages.engine.workspace import Setup
from stages.shapes import r1_tuned
from stages.shapes.launch_shapes import FIXED, KERNEL, SHAPES, SOURCE, Product, Shape
from stages.shapes.shape_sweeps import Sweeps
from tests.cpu_cuda.kernel_sources import copy_changed
from tests.cpu_cuda.shim import KernelFault, Shim, Toolchain, requires_compiler
from tests.kernels.cases import Case, all_cases, in_shape
from tests.nvrtc import requires_nvrtc
from tests.seeds import SEED
from tests.stages.engine.test_parts_on_cpu import ShimDevice
from tests.stages.engine.test_step import assert_first_updates, random_split

CASES = 3  # of each shape, drawn at random in every run
SMALL = Product(5, 7, 3, 1, 0)
OTHER = Product(6, 7, 3, 1, 0)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LADDER_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache" / "tuning"


class TimingDevice(ShimDevice):
    """Kernels on the CPU, and invented times in us, by a launch's place among the correct ones."""

    name = "a CPU"

    def __init__(self, shim: Shim, time_us: Callable[[int], float] = lambda place: 10.0 - place % 4) -> None:
        super().__init__(shim)
        self._time_us = time_us
        self.sources = "0123"
        self.swept = self.timed = 0

    def samples(self, candidates: Sequence[Callable[[], None]]) -> list[list[float]]:
        self.swept += 1
        self.timed = len(candidates)
        return [[self._time_us(place) * 1e-6 * noise for noise in (1, 1.01, 1.3)] for place in range(len(candidates))]

    def source_key(self, source: Path) -> str:
        return self.sources


def few_cases(count: int = CASES) -> Iterator[Case]:
    """Some cases of the kernel."""
    cases = list(all_cases(KERNEL, np.random.default_rng(SEED)))
    yield from random.Random(SEED).sample(cases, min(count, len(cases)))


def mismatch(shim: Shim, case: Case) -> str:
    args = case.copy_args()
    shim.launch(case.kernel, case.grid, case.block, *args.values(), macros=case.macros, seed=1)
    return case.mismatch(args)


@requires_compiler
def test_every_shape_computes_what_the_double_does(shim: Shim) -> None:
    for shape in SHAPES:
        for case in few_cases():
            assert mismatch(shim, in_shape(case, shape)) == "", shape


@requires_compiler
@pytest.mark.parametrize(
    ("right", "wrong"), [("m - 1)", "m)"), ("out_col >= n", "false"), ("r < TILE_ROWS; ++r) {", "r < 1; ++r) {")]
)
def test_a_kernel_that_is_wrong_in_other_shapes_alone_is_caught(
    right: str, wrong: str, tmp_path: Path, toolchain: Toolchain
) -> None:
    changed = copy_changed(SOURCE, tmp_path, lambda text: text.replace(right, wrong))
    assert changed.read_text() != SOURCE.read_text()
    shim = Shim([changed], toolchain)

    def is_right(case: Case) -> bool:
        try:
            return mismatch(shim, case) == ""
        except KernelFault:
            return False

    some = [shape for shape in SHAPES if shape.tile in ((4, 4), (2, 1))][:3]
    cases = list(all_cases(KERNEL, np.random.default_rng(SEED)))
    assert not all(is_right(in_shape(case, shape)) for shape, case in itertools.product(some, cases))


@requires_nvrtc
@pytest.mark.parametrize("arch", ["sm_75", "sm_120"])
def test_every_shape_compiles_without_spills(arch: str) -> None:
    for macros in {shape.macros for shape in SHAPES}:
        used = compile_cubin(SOURCE, arch, macros).resources[KERNEL]
        assert (used.spill_stores, used.spill_loads, used.stack_frame) == (0, 0, 0), macros


def test_a_shape_is_one_that_a_gpu_can_have() -> None:
    assert all(0 < shape.block[0] * shape.block[1] <= 1024 for shape in SHAPES)
    assert SHAPES[0] == FIXED
    assert FIXED.macros == ()
    assert len(SHAPES) == len(set(SHAPES))


def test_the_tuned_rung_changes_the_product_and_nothing_else() -> None:
    assert r1_tuned.STAGE.below == r1_naive.STAGE.name
    assert r1_tuned.STAGE.changed == "gemm: TunedGemm"


@requires_compiler
def test_the_fastest_shape_is_kept(shim: Shim) -> None:
    device = TimingDevice(shim)
    assert Sweeps(device).measure(SMALL) == SHAPES[3]
    assert device.timed == len(SHAPES)
    assert Sweeps(TimingDevice(shim)).get(SMALL) == SHAPES[3]


@requires_compiler
def test_a_kept_sweep_is_for_this_gpu_these_sources_sizes_and_shapes(
    shim: Shim, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = TimingDevice(shim)
    Sweeps(device).measure(SMALL)
    assert Sweeps(device).get(OTHER) is None
    assert Sweeps(device).get(SMALL._replace(trans_a=0)) is None
    device.sources = "changed"
    assert Sweeps(device).get(SMALL) is None
    device.sources, device.name = "0123", "another GPU"
    assert Sweeps(device).get(SMALL) is None
    device.name = "a CPU"
    assert Sweeps(device).get(SMALL) is not None
    monkeypatch.setattr("stages.shapes.shape_sweeps.SHAPES", SHAPES[:2])
    assert Sweeps(device).get(SMALL) is None


@requires_compiler
@pytest.mark.parametrize("content", [b"{", b'{"a": 1}', b"\xff"])
def test_a_damaged_file_is_measured_anew(content: bytes, shim: Shim, cache: Path) -> None:
    device = TimingDevice(shim)
    Sweeps(device).measure(SMALL)
    (file,) = cache.iterdir()
    file.write_bytes(content)
    sweeps = Sweeps(device)
    assert sweeps.get(SMALL) is None
    sweeps.measure(SMALL)
    assert Sweeps(device).get(SMALL) is not None


class Refusing(TimingDevice):
    """Refuses blocks of 64 threads, and ignores launches of blocks of 128."""

    def _launch(self, name: str, how: dict[str, Any], grid: Any, block: Any, *args: Any) -> None:
        if math.prod(block) == 64:
            raise RuntimeError("CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES: too many\nregisters")
        if math.prod(block) != 128:
            super()._launch(name, how, grid, block, *args)


@requires_compiler
def test_a_shape_that_is_refused_or_wrong_cannot_win(shim: Shim) -> None:
    device = Refusing(shim, lambda place: 1e6 * 0.9**place)
    right = [shape for shape in SHAPES if math.prod(shape.block) not in (64, 128)]
    assert Sweeps(device).measure(SMALL) == right[-1]
    assert device.timed == len(right) < len(SHAPES)


class Breaking(TimingDevice):
    """A GPU that fails every launch after one with blocks of 1,024 threads."""

    broken = False

    def _launch(self, name: str, how: dict[str, Any], grid: Any, block: Any, *args: Any) -> None:
        self.broken |= math.prod(block) == 1024
        if self.broken:
            raise RuntimeError("CUDA_ERROR_ILLEGAL_ADDRESS")
        super()._launch(name, how, grid, block, *args)


@requires_compiler
def test_nothing_is_kept_of_a_gpu_that_broke_on_the_way(shim: Shim) -> None:
    with pytest.raises(RuntimeError, match="ILLEGAL_ADDRESS"):
        Sweeps(Breaking(shim)).measure(SMALL)
    assert Sweeps(TimingDevice(shim)).get(SMALL) is None


@requires_compiler
@pytest.mark.parametrize("hidden", [(), (6, 5)], ids=str)
def test_the_tuned_step_is_the_oracle_s_and_tunes_once(hidden: tuple[int, ...], shim: Shim) -> None:
    assert r1_tuned.STAGE.recipe is not None
    problem = Problem(inputs=9, classes=4, hidden=hidden, batch_size=5, metrics_every=1)
    split = random_split(12, 9, 4)
    device = TimingDevice(shim, lambda place: 30.0 - place % 23)
    trainer = RecipeTrainer(r1_tuned.STAGE.recipe, problem, split, device)
    assert device.swept == (8 if hidden else 2)  # three a layer, but two for the first
    assert_first_updates(trainer, problem, split)
    RecipeTrainer(r1_tuned.STAGE.recipe, problem, split, device)
    assert device.swept == (8 if hidden else 2)


@requires_compiler
def test_a_shape_is_looked_up_once_for_each_product(shim: Shim) -> None:
    class Counting(r1_tuned.TunedGemm):
        asked = 0

        def shape(self, product: Product) -> Shape:
            self.asked += 1
            return FIXED

    device = TimingDevice(shim)
    gemm = Counting(cast(Setup, SimpleNamespace(device=device)))
    a, b, out = (device.upload(np.ones(shape, np.float32)) for shape in ((3, 2), (2, 4), (3, 4)))
    gemm(a, b, out)
    gemm(a, b, out, alpha=2.0)
    assert gemm.asked == 1
    assert (out == 4.0).all()
    gemm(out, b, a, trans_b=True)
    assert gemm.asked == 2
