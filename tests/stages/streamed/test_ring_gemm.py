"""Rings of weight tiles: what trains, from which order in memory, and which problems fit. On the CPU."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

from common.cuda.epilogue import Fusion, mask_shape
from common.problem import Problem, initial_params
from stages.classic.naive import STAGE as NAIVE
from stages.engine.step import RecipeTrainer, set_up
from stages.fusion.fused_epilogue import FusedEpilogue
from stages.streamed.ring_bf16 import BFloat16Ring
from stages.streamed.ring_gemm import RingGemm
from stages.streamed.ring_planes import PlanesRing
from stages.streamed.streamed_ring import ExactRing
from stages.streamed.weight_panels import from_panels, from_planes, to_panels, to_planes
from stages.tiles.fused_bias import FusedBias
from tests.cpu_cuda.shim import Shim, requires_compiler
from tests.seeds import SEED
from tests.stages.engine.test_parts_on_cpu import ShimDevice
from tests.stages.engine.test_step import assert_first_updates, random_split
from tests.stages.numpy_parts import RECIPE
from tests.stages.tiles.test_tile_gemm import ChosenBefore, use_library

PROBLEM = Problem(inputs=16, classes=10, hidden=(64, 128, 64), batch_size=5, metrics_every=1)
RINGS = pytest.mark.parametrize("gemm", [ExactRing, BFloat16Ring, PlanesRing], ids=lambda gemm: gemm.__name__)


@pytest.fixture
def device(shim: Shim, monkeypatch: pytest.MonkeyPatch) -> ShimDevice:
    """One that has a library, and always the last choice."""
    use_library(monkeypatch)
    made = ShimDevice(shim)
    made.block_shared_bytes, made.l2_bytes, made.multiprocessors, made.capability = 227 << 10, 50 << 20, 4, 90
    monkeypatch.setattr(made, "trials", lambda subject, **how: ChosenBefore(-1), raising=False)
    return made


@requires_compiler
@RINGS
@pytest.mark.parametrize("batch", [5, 37])
def test_it_trains_as_the_oracle_does_and_returns_what_it_was_given(
    gemm: type[RingGemm], batch: int, device: ShimDevice
) -> None:
    problem = replace(PROBLEM, batch_size=batch)
    split = random_split(2 * batch, problem.inputs, problem.classes)
    recipe = replace(RECIPE, gemm=gemm, epilogue=FusedEpilogue, update=FusedBias)
    trainer = RecipeTrainer(recipe, problem, split, device)
    given = initial_params(problem, 3)
    trainer.load_params(given)
    kept = trainer.read_params()
    assert [w.tobytes() for w in kept.weights] == [w.tobytes() for w in given.weights]
    assert_first_updates(trainer, problem, split, gemm.precision)


@requires_compiler
def test_a_gradient_without_an_update_leaves_the_weights(device: ShimDevice) -> None:
    assert NAIVE.recipe is not None
    setup = set_up(NAIVE.recipe, PROBLEM, random_split(5, 16, 10), device)
    multiply, random = ExactRing(setup), np.random.default_rng(SEED)
    plain, weight = random.standard_normal((64, 128), np.float32), setup.tensors.weights[1]
    weight[...] = to_panels(plain)
    doutput, dinput = random.standard_normal((5, 128), np.float32), np.full((5, 64), np.nan, np.float32)
    mask = np.full(mask_shape(5, 64), 255, np.uint8)
    multiply.fused(doutput, weight, dinput, Fusion("relu_backward", mask=mask), trans_b=True)
    assert np.isnan(dinput).all()
    multiply.flush()
    assert np.abs(dinput - doutput.astype(np.float64) @ plain.T).max() < 1e-4
    assert weight.tobytes() == to_panels(plain).tobytes()


@pytest.mark.parametrize("shape", [(16, 64), (64, 64), (80, 192), (200, 1152)], ids=str)
def test_orders_in_memory_keep_every_bit(shape: tuple[int, int]) -> None:
    bits = np.random.default_rng(SEED).integers(0, 1 << 32, shape, dtype=np.uint32)  # all kinds, NaN among them
    bits[0, :6] = 0x7FFFFFFF, 0xFFFFFFFF, 0x7F800000, 0x80000000, 0x00008000, 0xFFFF8000
    weights = bits.view(np.float32)
    for into, out_of in ((to_panels, from_panels), (to_planes, from_planes)):
        memory = into(weights)
        assert memory.shape == shape
        assert out_of(memory).tobytes() == weights.tobytes()


def test_orders_are_made_with_little_memory_at_once() -> None:
    weights = np.zeros((2048, 1024), np.float32)
    for change in (to_panels, from_panels, to_planes, from_planes):
        tracemalloc.start()
        change(weights)
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert most < 1.3 * weights.nbytes  # the result and some tiles: larger arrays would be new memory each time


def test_the_first_plane_is_the_nearest_bfloat16() -> None:
    weights = np.random.default_rng(SEED).standard_normal((64, 64), np.float32)
    first = to_planes(weights).view(np.uint16).reshape(2, -1)[0]
    nearest = (first.astype(np.uint32) << 16).view(np.float32)
    assert np.abs(np.sort(nearest) - np.sort(weights, axis=None)).max() <= 2.0**-8 * np.abs(weights).max()
    low = to_planes(nearest.reshape(64, 64)).view(np.uint16).reshape(2, -1)[1]
    assert not low.any(), "a bfloat16 has no remainder"
