"""A layer's way back in one pass: every way to divide it, clusters too, and who gets it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from common.cuda.epilogue import Fusion, mask_shape
from common.problem import Problem
from ladder.machine.environment import missing
from stages.classic.naive import STAGE as NAIVE
from stages.engine.step import set_up
from stages.streamed.streamed import ExactStreamed
from stages.streamed.streamed_bf16 import BFloat16Streamed
from stages.streamed.streamed_gemm import StreamedGemm
from stages.tiles.tile_gemm import ProductSpec
from tests.gpu.conftest import sanitizer
from tests.stages.engine.test_step import random_split

NEEDS = ["cublas", "sm_80"]
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(missing(NEEDS) is not None, reason=str(missing(NEEDS)))]

UNIT = 2.0**-24
ROUNDING: dict[type[StreamedGemm], float] = {ExactStreamed: 2.0**-21, BFloat16Streamed: 2.0**-8}
RATE = 2.0**-4


Made = Callable[[type[StreamedGemm], int], tuple[Any, StreamedGemm]]


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    """A GPU, and the products of a trainer on it, of which none has been measured yet."""
    from common.cuda.gpu import Gpu

    monkeypatch.setenv("LADDER_CACHE_DIR", str(tmp_path))

    def make(gemm: type[StreamedGemm], batch: int) -> tuple[Any, StreamedGemm]:
        gpu, problem = Gpu(), Problem(inputs=49, classes=10, batch_size=batch)
        assert NAIVE.recipe is not None
        return gpu, gemm(set_up(NAIVE.recipe, problem, random_split(batch, 49, 10), gpu))

    return make


# For a sanitizer the smallest that are divided in every way, with more pieces than are copied ahead.
BACK = [(17, 65, 528)] if sanitizer() else [(32, 784, 784), (9, 2048, 784), (17, 65, 160), (32, 4096, 528)]
FORWARD = [(17, 516, 68)] if sanitizer() else [(32, 784, 784), (9, 2048, 784), (17, 68, 160), (32, 4096, 532)]


@pytest.mark.parametrize(("batch", "fan_in", "fan_out"), BACK)
@pytest.mark.parametrize("gemm", ROUNDING, ids=lambda gemm: gemm.__name__)
def test_every_way_is_right_and_always_the_same(
    gemm: type[StreamedGemm], batch: int, fan_in: int, fan_out: int, made: Made
) -> None:
    gpu, multiply = made(gemm, batch)
    random = np.random.default_rng()
    inputs, doutputs = (random.standard_normal((batch, size), np.float32) for size in (fan_in, fan_out))
    weights, bias = random.standard_normal((fan_in, fan_out), np.float32), random.standard_normal(fan_out, np.float32)
    mask = random.integers(0, 256, mask_shape(batch, fan_in), np.uint8)
    passed = np.unpackbits(mask, axis=1, bitorder="little")[:, :fan_in]
    left, right = inputs.astype(np.float64), doutputs.astype(np.float64)
    expected = (np.where(passed, right @ weights.T, 0), weights - RATE * left.T @ right, bias - RATE * right.sum(0))
    factor = 2 * ROUNDING[gemm]  # for the bias half of it: tiles multiply a gradient rounded by 1
    bounds = (
        (factor + (2 * fan_out + 6) * UNIT) * np.abs(right) @ np.abs(weights).T,
        RATE * (factor + (2 * batch + 6) * UNIT) * np.abs(left).T @ np.abs(right) + 4 * UNIT * np.abs(weights),
        RATE * (factor / 2 + (2 * batch + 3) * UNIT) * np.abs(right).sum(axis=0) + 2 * UNIT * np.abs(bias),
    )
    x, d = gpu.upload(inputs), gpu.upload(doutputs)
    ways = multiply.backward_candidates(d, gpu.upload(weights))
    if sanitizer():
        del ways[0]  # tiles, which have tests of their own; a sanitizer would watch all of the trials that choose them
    for way in ways:
        results = []
        for _ in range(2):
            w, b, out = gpu.upload(weights), gpu.upload(bias), gpu.upload(np.full((batch, fan_in), np.nan, np.float32))
            held, row = Fusion("relu_backward", mask=gpu.upload(mask)), Fusion("bias_row", b)
            way(
                (d, w, out, ProductSpec(False, True, 1.0, 0.0, held)),
                (x, d, w, ProductSpec(True, False, -RATE, 1.0, row)),
            )
            results.append([gpu.download(found) for found in (out, w, b)])
        assert_right(way, results, expected, bounds)
    alone = ProductSpec(True, False, -RATE, 1.0, Fusion("bias_row", gpu.upload(bias)))
    for update in multiply.update_candidates(x, d, alone):
        results = []
        for _ in range(2):
            w, b = gpu.upload(weights), gpu.upload(bias)
            update(x, d, w, *alone._replace(fusion=Fusion("bias_row", b)))
            results.append([gpu.download(found) for found in (w, b)])
        assert_right(update, results, expected[1:], bounds[1:])


@pytest.mark.parametrize(("batch", "fan_in", "fan_out"), FORWARD)
@pytest.mark.parametrize("gemm", ROUNDING, ids=lambda gemm: gemm.__name__)
def test_every_way_forward_is_right_and_always_the_same(
    gemm: type[StreamedGemm], batch: int, fan_in: int, fan_out: int, made: Made
) -> None:
    gpu, multiply = made(gemm, batch)
    random = np.random.default_rng()
    inputs = random.standard_normal((batch, fan_in), np.float32)
    weights = random.standard_normal((fan_in, fan_out), np.float32)
    bias = random.standard_normal(fan_out, np.float32)
    bound = (2 * ROUNDING[gemm] + (2 * fan_in + 6) * UNIT) * np.abs(inputs).astype(np.float64) @ np.abs(weights)
    expected = np.maximum(inputs.astype(np.float64) @ weights + bias, 0)
    x, w, b = (gpu.upload(array) for array in (inputs, weights, bias))
    no_mask = np.zeros(mask_shape(batch, fan_out), np.uint8)
    how = ProductSpec(False, False, 1.0, 0.0, Fusion("relu_bias", b, gpu.upload(no_mask)))
    ways = multiply.forward_candidates(x, w, how)
    assert ways
    for way in ways:
        results = []
        for _ in range(2):
            out = gpu.upload(np.full((batch, fan_out), np.nan, np.float32))
            mask = gpu.upload(no_mask)
            way(x, w, out, *how._replace(fusion=Fusion("relu_bias", b, mask)))
            results.append([gpu.download(found) for found in (out, mask)])
        passed = np.packbits(results[0][0] > 0, axis=1, bitorder="little")
        assert (results[0][1][:, : passed.shape[1]] == passed).all(), way
        assert_right(way, [found[:1] for found in results], (expected,), (bound + 4 * UNIT * np.abs(bias),))


def assert_right(way: object, results: list[list[Any]], expected: tuple[Any, ...], bounds: tuple[Any, ...]) -> None:
    for found, again, wanted, bound in zip(*results, expected, bounds, strict=True):
        assert (np.abs(found - wanted) <= bound + 1e-30).all(), way
        assert found.tobytes() == again.tobytes(), way
