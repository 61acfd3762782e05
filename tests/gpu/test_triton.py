"""Products by Triton: every configuration, with shared k too, is right and repeats bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ladder.machine.environment import missing
from stages.engine.workspace import Setup
from stages.languages.triton_products import TritonProducts
from tests.gpu.test_tiles import SIZES, TRANSPOSES, UNIT, Factors

NEEDS = ["cuda", "triton"]
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(missing(NEEDS) is not None, reason=str(missing(NEEDS)))]


@pytest.mark.parametrize(("trans_a", "trans_b"), TRANSPOSES)
@pytest.mark.parametrize(("m", "n", "k"), SIZES)
def test_every_configuration_gives_the_product_and_always_the_same(
    m: int, n: int, k: int, trans_a: bool, trans_b: bool
) -> None:
    from common.cuda.gpu import Gpu

    gpu = Gpu()
    setup: Any = type("Setup", (), {"device": gpu, "kernel": Setup.kernel})()
    products = TritonProducts(setup)
    a, b, exact, magnitude = Factors(m, n, k, trans_a, trans_b).draw(gpu, 2.0**-16)
    bound = (2 * k + 4) * UNIT * magnitude + 4 * UNIT
    before = np.random.default_rng().standard_normal((m, n), np.float32)
    configs = products.cuts(before, k)
    assert len({config["SPLIT_K"] for config in configs}) > 1 or k < 32
    for config in configs:
        results = []
        for _ in range(8):
            out = gpu.upload(before)
            products(config, a, b, out, trans_a, trans_b, -0.5, 1.0)
            results.append(gpu.download(out))
        assert (np.abs(results[0] - (before - 0.5 * exact)) <= bound + 2 * UNIT * np.abs(before)).all(), config
        assert len({result.tobytes() for result in results}) == 1, config
