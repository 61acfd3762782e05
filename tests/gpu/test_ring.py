"""Rings of weight tiles on a GPU: every division among blocks, right and always the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from common.cuda.epilogue import Fusion, mask_shape
from common.problem import Params, Problem
from ladder.machine.environment import missing
from stages.classic.naive import STAGE as NAIVE
from stages.engine.step import set_up
from stages.streamed.ring_bf16 import BFloat16Ring
from stages.streamed.ring_gemm import RingGemm, panels_of
from stages.streamed.ring_planes import PlanesRing
from stages.streamed.streamed_ring import ExactRing
from stages.tiles.tile_gemm import ProductSpec
from tests.gpu.conftest import sanitizer
from tests.gpu.test_kernels import FOR_TOOLS
from tests.gpu.test_streamed import RATE, UNIT, assert_right
from tests.stages.engine.test_step import random_split

NEEDS = ["cublas", "sm_90"]
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(missing(NEEDS) is not None, reason=str(missing(NEEDS)))]

RINGS: dict[type[RingGemm], float] = {ExactRing: 2.0**-21, BFloat16Ring: 2.0**-8, PlanesRing: 2.0**-8}
# For a sanitizer the smallest that fill a ring twice.
SIZES = [(17, 80, 640), (49, 80, 640)]
if not sanitizer():
    SIZES += [(32, 784, 1024), (9, 2048, 256), (32, 4096, 640), (64, 784, 2048), (33, 2048, 256), (64, 2048, 640)]
SPLITS = (1, 3) if sanitizer() else (1, 2, 3, 4)


@pytest.mark.parametrize(("batch", "fan_in", "fan_out"), SIZES)
@pytest.mark.parametrize("gemm", RINGS, ids=lambda gemm: gemm.__name__)
def test_every_split_is_right_and_always_the_same(
    gemm: type[RingGemm], batch: int, fan_in: int, fan_out: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from common.cuda.gpu import Gpu

    monkeypatch.setenv("LADDER_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(gemm, "macros", gemm.macros + FOR_TOOLS.get(("ring_back", sanitizer()), ()))
    assert NAIVE.recipe is not None
    gpu, problem = Gpu(), Problem(inputs=16, classes=10, hidden=(64,), batch_size=batch)
    multiply = gemm(set_up(NAIVE.recipe, problem, random_split(batch, 16, 10), gpu))
    random = np.random.default_rng()
    inputs, doutputs = (random.standard_normal((batch, size), np.float32) for size in (fan_in, fan_out))
    weights, bias = random.standard_normal((fan_in, fan_out), np.float32), random.standard_normal(fan_out, np.float32)
    mask = random.integers(0, 256, mask_shape(batch, fan_in), np.uint8)
    passed = np.unpackbits(mask, axis=1, bitorder="little")[:, :fan_in]
    left, right, exact = (array.astype(np.float64) for array in (inputs, doutputs, weights))
    rounding = 2 * RINGS[gemm]
    forward = np.maximum(left @ exact + bias, 0)
    forward_bound = (rounding + (2 * fan_in + 6) * UNIT) * np.abs(left) @ np.abs(exact) + 4 * UNIT * np.abs(bias)
    expected = np.where(passed, right @ exact.T, 0), exact - RATE * left.T @ right, bias - RATE * right.sum(axis=0)
    bounds = (
        (rounding + (2 * fan_out + 6) * UNIT) * np.abs(right) @ np.abs(exact).T,
        RATE * (rounding + (2 * batch + 6) * UNIT) * np.abs(left).T @ np.abs(right) + 4 * UNIT * np.abs(exact),
        RATE * (rounding / 2 + (2 * batch + 3) * UNIT) * np.abs(right).sum(axis=0) + 2 * UNIT * np.abs(bias),
    )
    x, d, wide = map(gpu.upload, (inputs, doutputs, np.zeros(panels_of(fan_out, batch), np.float32)))
    packed = gemm.packed(Params((weights, bias), ())).weights[0]  # the last ones stay as they are
    for split in SPLITS:
        results = []
        for _ in range(2):
            out, b = gpu.upload(np.full((batch, fan_out), np.nan, np.float32)), gpu.upload(bias)
            bits = gpu.upload(np.zeros(mask_shape(batch, fan_out), np.uint8))
            if split <= -(-fan_in // 64):
                fusion = Fusion("relu_bias", b, bits)
                multiply._panels[id(out)] = wide
                multiply._forward_by(x, gpu.upload(packed), out, ProductSpec(False, False, 1.0, 0.0, fusion), split)
                found = gpu.download(out)
                passed_forward = np.unpackbits(gpu.download(bits), axis=1, count=fan_out, bitorder="little")
                assert (passed_forward == (found > 0)).all(), split
                assert_right(f"forward {split}", [[found], [found]], (forward,), (forward_bound,))
                panels = gpu.download(wide)[:, :batch, :64].swapaxes(0, 1).reshape(batch, fan_out)
                assert panels.tobytes() == found.tobytes(), split
                del multiply._panels[id(out)]
            w, b = gpu.upload(packed), gpu.upload(bias)
            dinputs = gpu.upload(np.full((batch, fan_in), np.nan, np.float32))
            held = (d, w, dinputs, ProductSpec(False, True, 1.0, 0.0, Fusion("relu_backward", mask=gpu.upload(mask))))
            multiply._back_by(held, x, d, w, b, RATE, split)
            alone = gpu.upload(packed)
            multiply._back_by(None, x, d, alone, gpu.upload(bias), RATE, split)
            assert gpu.download(alone).tobytes() == gpu.download(w).tobytes(), split
            updated = gemm.unpacked(Params((gpu.download(w), bias), ())).weights[0]
            results.append([gpu.download(dinputs), updated, gpu.download(b), found])
        assert_right(f"backward {split}", [run[:3] for run in results], expected, bounds)
        assert results[0][3].tobytes() == results[1][3].tobytes()
