"""Launch shapes on the GPU: each agrees with the product's double; sweeps are timed, kept and used."""

from __future__ import annotations

import secrets
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from common.problem import Problem
from stages.engine.parts import float32, int32
from stages.shapes import r1_tuned
from stages.shapes.launch_shapes import KERNEL, SHAPES, SOURCE, Product, Shape, load
from stages.shapes.shape_sweeps import Sweeps
from tests.cpu_cuda.kernel_sources import parse
from tests.gpu.test_kernels import launched
from tests.kernels.cases import all_cases, in_shape
from tests.stages.engine.test_step import random_split
from tests.stages.shapes.test_tuned import SMALL

pytestmark = pytest.mark.gpu


@pytest.fixture
def gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A GPU with an empty cache."""
    from common.cuda.gpu import Gpu

    monkeypatch.setenv("LADDER_CACHE_DIR", str(tmp_path))
    return Gpu()


def test_every_shape_computes_what_the_double_does(gpu: Any) -> None:
    (kernel,) = parse(SOURCE)
    seed = secrets.randbits(32)
    cases = list(all_cases(KERNEL, np.random.default_rng(seed)))
    for shape in SHAPES:
        function = gpu.kernel(SOURCE, KERNEL, macros=shape.macros)
        for drawn in cases[secrets.randbelow(3) :: 3]:
            case = in_shape(drawn, shape)
            assert case.mismatch(launched(gpu, function, kernel, case)) == "", f"{shape}, seed {seed}"


def test_the_fastest_shape_is_kept(gpu: Any) -> None:
    shape = Sweeps(gpu).measure(SMALL)
    assert shape in SHAPES
    assert Sweeps(gpu).get(SMALL) == shape


def test_a_block_with_too_many_registers_loses_and_breaks_nothing(gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    greedy = Shape((32, 32), (8, 8))  # 138 registers for each of 1,024 threads
    monkeypatch.setattr("stages.shapes.shape_sweeps.SHAPES", (*SHAPES[:2], greedy))
    assert Sweeps(gpu).measure(Product(300, 300, 64, 0, 0)) != greedy


def test_a_much_slower_candidate_is_not_repeated(gpu: Any) -> None:
    size = 2048
    numbers = gpu.upload(np.zeros((size, size), np.float32))
    product = Product(size, size, size, 0, 0)
    args = [numbers, numbers, numbers, *map(int32, product), float32(1.0), float32(0.0)]
    shapes = (SHAPES[0], Shape((128, 1)), Shape((4, 8)))
    counts = [len(times) for times in gpu.samples([partial(load(gpu, shape, product), *args) for shape in shapes])]
    assert set(counts) <= {1, 7}
    assert max(counts) == 7


def test_a_second_process_measures_nothing(gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = Problem(inputs=49, classes=10, hidden=(33,), batch_size=32)
    split = random_split(64, 49, 10)
    r1_tuned.STAGE.build(problem, split).close()
    monkeypatch.setattr(Sweeps, "measure", None)  # a product without a kept sweep fails now
    r1_tuned.STAGE.build(problem, split).close()
