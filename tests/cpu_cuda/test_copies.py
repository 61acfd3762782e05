"""Asynchronous copies: they are there once the thread has waited, and not before."""

from __future__ import annotations

import numpy as np
import pytest

from tests.cpu_cuda.conftest import Plant
from tests.cpu_cuda.shim import KernelFault, requires_compiler

pytestmark = requires_compiler

HEAD = """
#include "device/async_copies.cuh"
extern "C" __global__ void f(const float* x, float* y) {
    __shared__ float4 memory[64];
    float* own = reinterpret_cast<float*>(memory + 2 * threadIdx.x);
"""
TWO_GROUPS = """
    cp_async_16(own, x + 8 * threadIdx.x);
    cp_async_commit_group();
    cp_async_16(own + 4, x + 8 * threadIdx.x + 4, false);
    cp_async_commit_group();
"""
TAKE_BOTH = "for (int i = 0; i < 8; ++i) y[8 * threadIdx.x + i] = own[i]; }"


def run(plant: Plant, body: str) -> np.ndarray:
    x, y = np.arange(256, dtype=np.float32), np.full(256, -1, np.float32)
    plant(HEAD + body).launch("f", 1, 32, x, y)
    return y.reshape(32, 2, 4)


def test_they_are_there_once_they_are_waited_for(plant: Plant) -> None:
    copied = run(plant, f"{TWO_GROUPS} cp_async_wait_all(); {TAKE_BOTH}")
    np.testing.assert_array_equal(copied[:, 0], np.arange(256).reshape(32, 2, 4)[:, 0])
    np.testing.assert_array_equal(copied[:, 1], 0)  # elements that do not exist


def test_nothing_is_there_before(plant: Plant) -> None:
    assert np.isnan(run(plant, f"{TWO_GROUPS} {TAKE_BOTH}")).all()


def test_the_youngest_groups_are_not_waited_for(plant: Plant) -> None:
    copied = run(plant, f"{TWO_GROUPS} cp_async_wait_group<1>(); {TAKE_BOTH}")
    assert not np.isnan(copied[:, 0]).any()
    assert np.isnan(copied[:, 1]).all()


def test_what_belongs_to_no_group_yet_is_not_waited_for(plant: Plant) -> None:
    copied = run(plant, f"cp_async_16(own, x); cp_async_wait_group<0>(); {TAKE_BOTH}")
    assert np.isnan(copied[:, 0]).all()


def test_a_misaligned_one_is_refused(plant: Plant) -> None:
    with pytest.raises(KernelFault, match="misaligned copy"):
        run(plant, f"cp_async_16(own, x + 1); {TAKE_BOTH}")
