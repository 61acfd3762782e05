"""Copies of whole runs: they are there once a thread has waited for their barrier, and not before."""

from __future__ import annotations

import numpy as np
import pytest

from tests.cpu_cuda.conftest import Plant
from tests.cpu_cuda.shim import KernelFault, requires_compiler

pytestmark = requires_compiler

HEAD = """#include "device/bulk_copies.cuh"
extern "C" __global__ void f(const float* x, float* y) {
    __shared__ float4 memory[64];
    __shared__ Barrier barrier;
    float* own = reinterpret_cast<float*>(memory);
    if (threadIdx.x == 0) mbarrier_init(barrier, 1);
    __syncthreads();"""
FETCH = "if (threadIdx.x == 0) { mbarrier_arrive_expect_tx(barrier, 256); cp_async_bulk(own, barrier, x, 256); }"
WAIT = "mbarrier_wait_parity(barrier, 0);"
TAKE = "for (int i = 0; i < 2; ++i) y[2 * threadIdx.x + i] = own[2 * threadIdx.x + i]; }"


def run(plant: Plant, body: str) -> np.ndarray:
    x, y = np.arange(64, dtype=np.float32), np.full(64, -1, np.float32)
    plant(HEAD + body).launch("f", 1, 32, x, y, limit_s=5)
    return y


HALVES = "if (threadIdx.x < 2) cp_async_bulk(own + 32 * threadIdx.x, barrier, x + 32 * threadIdx.x, 128);"


@pytest.mark.parametrize("copies", [FETCH, f"if (threadIdx.x == 0) mbarrier_arrive_expect_tx(barrier, 256); {HALVES}"])
def test_they_are_there_once_their_barrier_is_waited_for_and_not_before(plant: Plant, copies: str) -> None:
    np.testing.assert_array_equal(run(plant, copies + WAIT + TAKE), np.arange(64))
    assert np.isnan(run(plant, f"{copies} __syncthreads(); {TAKE}")).all()


def test_a_misaligned_one_is_refused(plant: Plant) -> None:
    with pytest.raises(KernelFault, match="misaligned"):
        run(plant, FETCH.replace("barrier, x,", "barrier, x + 1,") + WAIT + TAKE)
