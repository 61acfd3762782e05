"""Products by our tiles: every way to cut them, clusters too, and the choice between those and cuBLASLt."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from common.cuda.epilogue import Fusion, mask_shape
from common.problem import Problem
from ladder.machine.environment import missing
from stages.classic.naive import STAGE as NAIVE
from stages.engine.step import set_up
from stages.engine.workspace import Setup
from stages.tiles.bf16 import BFloat16Gemm
from stages.tiles.exact_u8 import ExactGemm
from stages.tiles.fp16 import Float16Gemm
from stages.tiles.skinny_gemm import SkinnyGemm
from stages.tiles.tf32 import Tf32Gemm
from stages.tiles.tile_gemm import TileGemm, gradient_scale
from stages.tiles.tile_kernels import TileProducts
from tests.stages.engine.test_step import random_split

NEEDS = ["cublas", "sm_80"]
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(missing(NEEDS) is not None, reason=str(missing(NEEDS)))]

UNIT = 2.0**-24
ROUNDING: dict[type[TileGemm], float] = {
    SkinnyGemm: 0.0,
    Tf32Gemm: 2.0**-11,
    BFloat16Gemm: 2.0**-8,
    Float16Gemm: 2.0**-11,
    ExactGemm: 2.0**-21,
}
BATCH = 32


@dataclass
class Factors:
    """A product's factors, here and on the device, and what it should be."""

    m: int
    n: int
    k: int
    trans_a: bool
    trans_b: bool

    def draw(self, gpu: Any, gradient: float) -> tuple[Any, Any, Any, Any]:
        """a and b on the device, their exact product, and the product of their magnitudes."""
        random = np.random.default_rng()
        a: Any = random.standard_normal((self.k, self.m) if self.trans_a else (self.m, self.k), np.float32)
        b: Any = random.standard_normal((self.n, self.k) if self.trans_b else (self.k, self.n), np.float32)
        a *= np.float32(gradient if self.trans_b else 1)
        b *= np.float32(gradient if self.trans_a else 1)
        left = (a.T if self.trans_a else a).astype(np.float64)
        right = (b.T if self.trans_b else b).astype(np.float64)
        return gpu.upload(a), gpu.upload(b), left @ right, np.abs(left) @ np.abs(right)


SIZES = [(128, 10, 784), (33, 65, 100), (32, 128, 4096), (31, 17, 1)]
TRANSPOSES = [(False, False), (True, False), (False, True)]


@pytest.mark.parametrize(("trans_a", "trans_b"), TRANSPOSES)
@pytest.mark.parametrize(("m", "n", "k"), SIZES)
@pytest.mark.parametrize("gemm", ROUNDING, ids=lambda gemm: gemm.__name__)
def test_every_cut_gives_the_product_and_always_the_same(
    gemm: type[TileGemm], m: int, n: int, k: int, trans_a: bool, trans_b: bool
) -> None:
    from common.cuda.gpu import Gpu

    gpu = Gpu()
    setup: Any = type("Setup", (), {"device": gpu, "kernel": Setup.kernel})()
    tiles = TileProducts(setup, *gemm.kernel, scale=gradient_scale(BATCH) if gemm is Float16Gemm else 1.0)
    a, b, exact, magnitude = Factors(m, n, k, trans_a, trans_b).draw(gpu, 2.0**-16)
    bound = (2 * ROUNDING[gemm] + (2 * k + 4) * UNIT) * magnitude + 4 * UNIT
    before = np.random.default_rng().standard_normal((m, n), np.float32)
    cuts = tiles.cuts(before, k)
    assert len({cut.blocks for cut in cuts}) > 1 or not gpu.has_clusters or k < 32
    for cut in cuts:
        results = []
        for _ in range(2):
            out = gpu.upload(before)
            tiles(cut, a, b, out, trans_a, trans_b, -0.5, 1.0)
            results.append(gpu.download(out))
        expected = before - 0.5 * exact
        assert (np.abs(results[0] - expected) <= bound + 2 * UNIT * np.abs(before)).all(), cut
        assert results[0].tobytes() == results[1].tobytes(), cut


@pytest.mark.parametrize(("m", "n", "k"), [(128, 256, 784), (128, 10, 784), (7, 33, 49), (1, 64, 49), (32, 129, 2)])
@pytest.mark.parametrize("gemm", ROUNDING, ids=lambda gemm: gemm.__name__)
def test_fusions_whoever_is_chosen_for_them(
    gemm: type[TileGemm], m: int, n: int, k: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from common.cuda.gpu import Gpu

    monkeypatch.setenv("LADDER_CACHE_DIR", str(tmp_path))
    gpu = Gpu()
    problem = Problem(inputs=k, classes=10, batch_size=m)
    assert NAIVE.recipe is not None
    setup = set_up(NAIVE.recipe, problem, random_split(2 * m, k, 10), gpu)
    multiply = gemm(setup)
    _, (images, _) = setup.tensors.batches
    random = np.random.default_rng()
    weight, bias = random.standard_normal((k, n), np.float32), random.standard_normal((n,), np.float32)
    doutput, next_weight = random.standard_normal((m, 10), np.float32), random.standard_normal((n, 10), np.float32)
    doutput /= m  # a gradient is a mean over the batch, by which float16 scales it
    right, bias_there, next_left, next_right = map(gpu.upload, (weight, bias, doutput, next_weight))
    out, dinput = (gpu.upload(np.full((m, n), np.nan, np.float32)) for _ in range(2))
    mask = gpu.empty(mask_shape(m, n), np.uint8)
    inputs = gpu.download(images).astype(np.float64)

    before = inputs @ weight + bias
    bound = (2 * ROUNDING[gemm] + (2 * k + 4) * UNIT) * (inputs @ np.abs(weight)) + 4 * UNIT * np.abs(bias) + UNIT
    fusions = (Fusion("bias", bias_there), before), (Fusion("relu_bias", bias_there, mask), np.maximum(before, 0))
    for fusion, expected in fusions:
        for _ in range(2):  # the second without trying
            multiply.fused(images, right, out, fusion)
            assert (np.abs(gpu.download(out) - expected) <= bound).all()
    passed = gpu.download(out) > 0
    back = Fusion("relu_backward", mask=mask)
    for _ in range(2):
        multiply.fused(next_left, next_right, dinput, back, trans_b=True)
        found = gpu.download(dinput)
        exact = doutput.astype(np.float64) @ next_weight.T.astype(np.float64)
        magnitude = np.abs(doutput) @ np.abs(next_weight.T)
        limit = (2 * ROUNDING[gemm] + 24 * UNIT) * magnitude + UNIT / m
        assert (np.abs(found - np.where(passed, exact, 0)) <= limit).all()
        assert (found[~passed] == 0).all()
    assert len(list((tmp_path / "tuning").iterdir())) >= 1
