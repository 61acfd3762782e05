"""Products by cuBLASLt, the first of their shapes too, for which algorithms are tried out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ladder.environment import missing

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(missing(["cublas"]) is not None, reason=str(missing(["cublas"])))]

UNIT = 2.0**-24


@pytest.fixture
def tuning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache on disk in which no algorithm has been chosen yet."""
    from common.cuda import cublas

    monkeypatch.setenv("LADDER_CACHE_DIR", str(tmp_path))
    cublas._chosen.cache_clear()
    yield tmp_path / "tuning"
    cublas._chosen.cache_clear()


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
