"""Streamed products and rings of weight tiles: what trains, from which order in memory. On the CPU."""

from __future__ import annotations

import re
import tracemalloc
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from common.cuda.epilogue import Fusion, mask_shape
from common.problem import Problem, initial_params
from stages.classic.naive import STAGE as NAIVE
from stages.engine.step import RecipeTrainer, set_up
from stages.fusion.fused_epilogue import FusedEpilogue
from stages.streamed import last_layer
from stages.streamed.ring_bf16 import BFloat16Ring
from stages.streamed.ring_gemm import RingGemm
from stages.streamed.ring_planes import PlanesRing
from stages.streamed.streamed import ExactStreamed
from stages.streamed.streamed_bf16 import BFloat16Streamed
from stages.streamed.streamed_gemm import StreamedGemm
from stages.streamed.streamed_ring import ExactRing
from stages.streamed.weight_panels import from_panels, from_planes, to_panels, to_planes
from stages.tiles.fused_bias import FusedBias
from tests.cpu_cuda.shim import Shim, requires_compiler
from tests.seeds import SEED
from tests.stages.engine.test_parts_on_cpu import ShimDevice
from tests.stages.engine.test_step import assert_first_updates, random_split
from tests.stages.numpy_parts import RECIPE
from tests.stages.tiles.test_tile_gemm import ChosenBefore, use_library

# Who does a layer's way back, one kernel or two, and that no product is lost on the way. On the CPU.


pytestmark = requires_compiler

PROBLEM = Problem(inputs=20, classes=10, hidden=(19, 32, 16), batch_size=17, metrics_every=1)


@pytest.fixture
def device(shim: Shim, monkeypatch: pytest.MonkeyPatch) -> ShimDevice:
    """One that has a library, and counts the launches of each kernel."""
    use_library(monkeypatch)
    made = ShimDevice(shim)
    made.block_shared_bytes, made.l2_bytes = 227 << 10, 60 << 20
    return made


@pytest.mark.parametrize("place", [0, -1], ids=["two kernels", "one kernel"])
@pytest.mark.parametrize("gemm", [ExactStreamed, BFloat16Streamed], ids=lambda gemm: gemm.__name__)
def test_it_trains_as_the_oracle_does(
    gemm: type[StreamedGemm], place: int, device: ShimDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device, "trials", lambda subject, **how: ChosenBefore(place), raising=False)
    split = random_split(2 * 17, PROBLEM.inputs, PROBLEM.classes)
    recipe = replace(RECIPE, gemm=gemm, epilogue=FusedEpilogue, update=FusedBias)
    assert_first_updates(RecipeTrainer(recipe, PROBLEM, split, device), PROBLEM, split, gemm.precision)


@pytest.mark.parametrize("next_call", ["product", "flush"])
def test_a_withheld_product_comes_before_any_other(
    next_call: str, device: ShimDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device, "trials", lambda subject, **how: ChosenBefore(0), raising=False)
    assert NAIVE.recipe is not None
    setup = set_up(NAIVE.recipe, PROBLEM, random_split(17, 20, 10), device)
    multiply, random = ExactStreamed(setup), np.random.default_rng(SEED)
    doutput, weight = random.standard_normal((17, 32), np.float32), random.standard_normal((19, 32), np.float32)
    other = random.standard_normal((32, 4), np.float32)
    dinput, product = np.full((17, 19), np.nan, np.float32), np.full((17, 4), np.nan, np.float32)
    mask: Any = np.full(mask_shape(17, 19), 255, np.uint8)
    multiply.fused(doutput, weight, dinput, Fusion("relu_backward", mask=mask), trans_b=True)
    assert np.isnan(dinput).all()
    if next_call == "flush":
        multiply.flush()
        assert not np.isnan(dinput).any()
    multiply(doutput, other, product)
    for result, left, right in ((dinput, doutput, weight.T), (product, doutput, other)):
        assert np.abs(result - left.astype(np.float64) @ right).max() < 1e-4


def test_what_is_chosen_belongs_to_the_share_of_the_weights_that_stays_in_l2(
    device: ShimDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    cold: list[bool] = []

    def trials(subject: str, *, are_cold: bool | None = None) -> ChosenBefore:
        asked.append(subject)
        if are_cold is not None:
            cold.append(are_cold)
        return ChosenBefore(0)

    monkeypatch.setattr(device, "trials", trials, raising=False)
    for l2_bytes in (60 << 20, 8 << 10, 0):  # the weights are 6,640 bytes
        device.l2_bytes = l2_bytes
        BFloat16Streamed(set_up(RECIPE, PROBLEM, random_split(17, PROBLEM.inputs, PROBLEM.classes), device))
    assert cold == [False, False, True]  # L2 is flushed if the weights exceed it
    assert [found[1] for subject in asked if (found := re.search(r" kept (\d+) ", subject))] == ["16", "7", "0"]


def test_a_rung_pads_widths_that_its_head_does_not_take() -> None:
    assert not last_layer.STAGE.misfit(Problem(inputs=784, classes=10, hidden=(30,), batch_size=32), steps=468)


# Rings of weight tiles: what trains, from which order in memory, and which problems fit. On the CPU.


IN_RINGS = Problem(inputs=16, classes=10, hidden=(64, 128, 64), batch_size=5, metrics_every=1)
RINGS = pytest.mark.parametrize("gemm", [ExactRing, BFloat16Ring, PlanesRing], ids=lambda gemm: gemm.__name__)


@pytest.fixture
def ring_device(shim: Shim, monkeypatch: pytest.MonkeyPatch) -> ShimDevice:
    """One that has a library, and always the last choice."""
    use_library(monkeypatch)
    made = ShimDevice(shim)
    made.block_shared_bytes, made.l2_bytes, made.multiprocessors, made.capability = 227 << 10, 50 << 20, 4, 90
    monkeypatch.setattr(made, "trials", lambda subject, **how: ChosenBefore(-1), raising=False)
    return made


@requires_compiler
@RINGS
@pytest.mark.parametrize("batch", [5, 37])
def test_a_ring_trains_as_the_oracle_does_and_returns_what_it_was_given(
    gemm: type[RingGemm], batch: int, ring_device: ShimDevice
) -> None:
    problem = replace(IN_RINGS, batch_size=batch)
    split = random_split(2 * batch, problem.inputs, problem.classes)
    recipe = replace(RECIPE, gemm=gemm, epilogue=FusedEpilogue, update=FusedBias)
    trainer = RecipeTrainer(recipe, problem, split, ring_device)
    given = initial_params(problem, 3)
    trainer.load_params(given)
    kept = trainer.read_params()
    assert [w.tobytes() for w in kept.weights] == [w.tobytes() for w in given.weights]
    assert_first_updates(trainer, problem, split, gemm.precision)


@requires_compiler
def test_a_gradient_without_an_update_leaves_the_weights(ring_device: ShimDevice) -> None:
    assert NAIVE.recipe is not None
    setup = set_up(NAIVE.recipe, IN_RINGS, random_split(5, 16, 10), ring_device)
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
