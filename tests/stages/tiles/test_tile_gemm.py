"""How products are cut for our tiles, and who gets them: every cut and the library in turn, on the CPU."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from common.cuda.epilogue import Fusion
from common.problem import Problem
from stages.classic.naive import STAGE as NAIVE
from stages.engine.step import RecipeTrainer, set_up
from stages.fusion.fused_epilogue import FusedEpilogue
from stages.tiles import tile_gemm
from stages.tiles.exact_u8 import ExactGemm
from stages.tiles.fp16 import Float16Gemm
from stages.tiles.fused_bias import FusedBias
from stages.tiles.skinny_gemm import SkinnyGemm
from stages.tiles.tile_gemm import ProductSpec, TileGemm, gradient_scale, tile_source_hash
from stages.tiles.tile_kernels import MOST_WARPS, SHAPES, STEP, cuts
from tests.cpu_cuda.kernel_sources import KERNELS_FOLDER
from tests.cpu_cuda.shim import Shim, requires_compiler
from tests.seeds import SEED
from tests.stages.engine.test_parts_on_cpu import ShimDevice
from tests.stages.engine.test_step import assert_first_updates, random_split
from tests.stages.numpy_parts import RECIPE, NumpyGemm

SIZES = [(1, 1, 1), (128, 10, 784), (784, 10, 128), (32, 4096, 4096), (4096, 4096, 32)]


@pytest.mark.parametrize(("m", "n", "k"), SIZES)
def test_every_warp_of_a_cut_has_work_and_clusters_are_asked_for_only_where_there_are_some(
    m: int, n: int, k: int
) -> None:
    candidates = cuts(m, n, k, with_clusters=True)
    assert len(candidates) == len(set(candidates)) > 0
    for cut in candidates:
        assert 1 <= cut.warps <= MOST_WARPS
        assert (cut.warps * cut.blocks - 1) * STEP < k
    assert {cut.shape for cut in candidates} == set(range(len(SHAPES)))
    assert set(cuts(m, n, k, with_clusters=False)) == {cut for cut in candidates if cut.blocks == 1}


@pytest.mark.parametrize("batch", [1, 7, 128, 60000])
def test_gradients_are_scaled_by_a_power_of_two_that_brings_them_near_256(batch: int) -> None:
    scale = gradient_scale(batch)
    assert np.frexp(scale)[0] == 0.5
    assert 256 <= scale / batch < 512


class ChosenBefore:
    """Trials that try every candidate twice, and choose one by its place."""

    def __init__(self, place: int) -> None:
        self.purposes: list[str] = []
        self._place = place

    def fastest(self, purpose: str, candidates: Sequence[Callable[[], None]]) -> int:
        for candidate in 2 * [*candidates]:
            candidate()
        self.purposes.append(purpose)
        return self._place % len(candidates)


class Library:
    """cuBLASLt in NumPy, which counts what it does for whom."""

    calls = 0
    version = 130100

    def __init__(self, device: Any, factors: str) -> None:
        self._multiply = NumpyGemm(device)

    def __call__(self, a: Any, b: Any, out: Any, *spec: Any) -> None:
        Library.calls += 1
        assert a.dtype == np.float32, "the library takes no bytes"
        *_, fusion = ProductSpec(*spec)
        how = dict(zip(("trans_a", "trans_b", "alpha", "beta"), spec, strict=False))
        assert fusion is None or fusion.kind != "bias_row", "no epilogue of the library's"
        self._multiply.fused(a, b, out, fusion, **how)


def use_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let gemms find it where cuBLASLt is."""
    fake = ModuleType("common.cuda.cublas")
    monkeypatch.setattr(fake, "Matmul", Library, raising=False)
    monkeypatch.setitem(sys.modules, "common.cuda.cublas", fake)


def test_a_kept_choice_is_of_the_tiles_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = tile_source_hash("tiles/tile_*.cu")
    shutil.copytree(KERNELS_FOLDER, tmp_path / "kernels")
    monkeypatch.setattr(tile_gemm, "KERNELS", tmp_path / "kernels")
    assert tile_source_hash("tiles/tile_*.cu") == before
    for name, changes in (("plain/softmax.cu", False), ("tiles/output_tiles.cuh", True), ("tiles/tile_u8.cu", True)):
        was = tile_source_hash("tiles/tile_*.cu")
        with (tmp_path / "kernels" / name).open("a") as file:
            file.write("\nint planted;\n")
        assert (tile_source_hash("tiles/tile_*.cu") != was) == changes


@requires_compiler
@pytest.mark.parametrize("place", [0, -1], ids=["ours", "the library if it may"])
@pytest.mark.parametrize("gemm", [SkinnyGemm, ExactGemm, Float16Gemm], ids=lambda gemm: gemm.__name__)
def test_trials_spoil_nothing_and_whoever_is_chosen_is_right(
    gemm: type[TileGemm], place: int, shim: Shim, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_library(monkeypatch)
    monkeypatch.setattr(Library, "calls", 0)
    device, trials = ShimDevice(shim), ChosenBefore(place)
    monkeypatch.setattr(device, "trials", lambda subject: trials, raising=False)
    batch, inputs, outputs = 17, 20, 10
    problem = Problem(inputs=inputs, classes=outputs, batch_size=batch)
    assert NAIVE.recipe is not None
    setup = set_up(NAIVE.recipe, problem, random_split(batch, inputs, outputs), device)
    multiply, random = gemm(setup), np.random.default_rng(SEED)
    ((images, _),) = setup.tensors.batches
    weight, bias = random.standard_normal((inputs, outputs), np.float32), random.standard_normal(outputs, np.float32)
    doutput = random.standard_normal((batch, outputs), np.float32) * np.float32(2.0**-20)  # float16 alone has none such
    exact = images.T.astype(np.float64) @ doutput
    for _ in range(2):  # with trials, and without
        updated, moved = weight.copy(), bias.copy()
        row = Fusion("bias_row", moved)
        multiply.fused(images, doutput, updated, row, trans_a=True, alpha=-(2.0**20), beta=1.0)
        largest = np.abs(exact).max() * 2.0**20
        assert np.abs(updated - (weight - 2.0**20 * exact)).max() < 2e-3 * largest
        assert np.abs(moved - (bias - 2.0**20 * doutput.sum(axis=0, dtype=np.float64))).max() < 2e-3 * largest
        dinput = np.full((batch, inputs), np.nan, np.float32)
        multiply(doutput, weight, dinput, trans_b=True)
        assert np.abs(dinput - doutput @ weight.T).max() < 2e-3 * np.abs(doutput @ weight.T).max()
    assert (Library.calls > 0) == (gemm is not Float16Gemm)


@requires_compiler
@pytest.mark.parametrize("gemm", [SkinnyGemm, ExactGemm, Float16Gemm], ids=lambda gemm: gemm.__name__)
def test_it_trains_as_the_oracle_does(gemm: type[TileGemm], shim: Shim, monkeypatch: pytest.MonkeyPatch) -> None:
    use_library(monkeypatch)
    device, trials = ShimDevice(shim), ChosenBefore(0)
    monkeypatch.setattr(device, "trials", lambda subject: trials, raising=False)
    problem = Problem(inputs=20, classes=10, hidden=(19, 8), batch_size=17, metrics_every=1)
    split = random_split(2 * 17, problem.inputs, problem.classes)
    recipe = replace(RECIPE, gemm=gemm, epilogue=FusedEpilogue, update=FusedBias)
    assert_first_updates(RecipeTrainer(recipe, problem, split, device), problem, split, gemm.precision)
    assert len(trials.purposes) == len(set(trials.purposes)) == 8  # three on the way forward, two back, three updates
