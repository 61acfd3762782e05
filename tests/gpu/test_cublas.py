"""Products by cuBLASLt, the first of their shapes too, for which algorithms are tried out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ladder.machine.environment import missing

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(missing(["cublas"]) is not None, reason=str(missing(["cublas"])))]

UNIT = 2.0**-24


@pytest.fixture
def tuning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache on disk in which no algorithm has been chosen yet."""
    monkeypatch.setenv("LADDER_CACHE_DIR", str(tmp_path))
    return tmp_path / "tuning"


@pytest.mark.parametrize(("alpha", "beta"), [(1.0, 0.0), (-0.1, 1.0)])
@pytest.mark.parametrize(("trans_a", "trans_b"), [(False, False), (True, False), (False, True)])
@pytest.mark.parametrize(("m", "n", "k"), [(784, 10, 128), (33, 7, 1), (1, 65, 31)])
def test_a_product_is_right_though_algorithms_were_tried_for_it(
    tuning: Path, m: int, n: int, k: int, trans_a: bool, trans_b: bool, alpha: float, beta: float
) -> None:
    from common.cuda.cublas import Matmul
    from common.cuda.gpu import Gpu

    gpu = Gpu()
    random = np.random.default_rng()
    a: Any = random.standard_normal((k, m) if trans_a else (m, k), np.float32)
    b: Any = random.standard_normal((n, k) if trans_b else (k, n), np.float32)
    out = random.standard_normal((m, n), np.float32) if beta else np.full((m, n), np.nan, np.float32)
    on_device = gpu.upload(out)
    multiply = Matmul(gpu)
    before = out
    for _ in range(2):  # the second without trying
        multiply(gpu.upload(a), gpu.upload(b), on_device, trans_a, trans_b, alpha, beta)
        op_a, op_b = (a.T if trans_a else a).astype(np.float64), (b.T if trans_b else b).astype(np.float64)
        expected, magnitude = alpha * op_a @ op_b, abs(alpha) * np.abs(op_a) @ np.abs(op_b)
        if beta:
            expected, magnitude = expected + beta * before, magnitude + np.abs(beta * before)
        found = gpu.download(on_device)
        assert (np.abs(found - expected) <= (k + 4) * UNIT * magnitude).all()
        before = found
    assert len(list(tuning.iterdir())) == 1  # it did try


@pytest.mark.usefixtures("tuning")
@pytest.mark.parametrize("out", [np.float32, np.float16])
@pytest.mark.parametrize(("count", "m", "n", "k"), [(None, 64, 32, 48), (1, 784, 256, 64), (4, 48, 64, 16)])
def test_factors_and_results_may_be_float16_and_products_several(
    count: int | None, m: int, n: int, k: int, out: type[np.floating[Any]]
) -> None:
    from common.cuda.cublas import Matmul
    from common.cuda.gpu import Gpu

    gpu = Gpu()
    random = np.random.default_rng()
    several = () if count is None else (count,)
    a, b = (random.standard_normal((*several, k, width)).astype(np.float16) for width in (m, n))
    on_device = gpu.upload(np.full((*several, m, n), np.nan, out))
    multiply = Matmul(gpu)
    left, right = np.swapaxes(a, -1, -2).astype(np.float64), b.astype(np.float64)
    rounding = UNIT if out == np.float32 else 2.0**-11
    bound = 0.5 * ((k + 4) * UNIT * np.abs(left) @ np.abs(right) + 2 * rounding * np.abs(left @ right)) + 2.0**-25
    for _ in range(2):  # the second without trying
        multiply(gpu.upload(a), gpu.upload(b), on_device, True, False, 0.5, 0.0)
        assert (np.abs(gpu.download(on_device) - 0.5 * left @ right) <= bound).all()


@pytest.mark.usefixtures("tuning")
@pytest.mark.parametrize(("m", "n", "k"), [(128, 256, 784), (128, 10, 784), (7, 33, 49), (1, 64, 49), (32, 129, 2)])
def test_bias_and_relu_are_fused_and_the_mask_of_the_relu_serves_the_way_back(m: int, n: int, k: int) -> None:
    from common.cuda.cublas import Matmul
    from common.cuda.epilogue import Fusion, mask_shape
    from common.cuda.gpu import Gpu

    gpu = Gpu()
    random = np.random.default_rng()
    inputs, weight, bias = (random.standard_normal(shape, np.float32) for shape in ((m, k), (k, n), (n,)))
    doutput, next_weight = (random.standard_normal(shape, np.float32) for shape in ((m, 10), (n, 10)))
    left, right, next_left, next_right = map(gpu.upload, (inputs, weight, doutput, next_weight))
    out, dinput = (gpu.upload(np.full((m, n), np.nan, np.float32)) for _ in range(2))
    mask = gpu.empty(mask_shape(m, n), np.uint8)
    multiply, on_the_way_back = Matmul(gpu), Fusion("relu_backward", mask=mask)

    before = inputs.astype(np.float64) @ weight.astype(np.float64) + bias
    bound = (k + 4) * UNIT * (np.abs(inputs) @ np.abs(weight) + np.abs(bias))
    bias_there = gpu.upload(bias)
    fusions = (Fusion("bias", bias_there), before), (Fusion("relu_bias", bias_there, mask), np.maximum(before, 0))
    for fusion, expected in fusions:
        for _ in range(2):  # the second without trying algorithms
            multiply(left, right, out, False, False, 1.0, 0.0, fusion)
            assert (np.abs(gpu.download(out) - expected) <= bound).all()

    passed = gpu.download(out) > 0
    for _ in range(2):
        multiply(next_left, next_right, dinput, False, True, 1.0, 0.0, on_the_way_back)
        found = gpu.download(dinput)
        magnitude = np.abs(doutput) @ np.abs(next_weight.T)
        exact = doutput.astype(np.float64) @ next_weight.T.astype(np.float64)
        assert (np.abs(found - np.where(passed, exact, 0)) <= 14 * UNIT * magnitude).all()
        assert (found[~passed] == 0).all()
