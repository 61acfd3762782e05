"""Kernels with defects that a GPU often hides: each is caught, for the right reason."""

from __future__ import annotations

import numpy as np
import pytest

from tests.cpu_cuda.conftest import Plant
from tests.cpu_cuda.shim import KernelFault, requires_compiler

pytestmark = requires_compiler


def test_a_missing_barrier_reads_poison(plant: Plant) -> None:
    shim = plant("""
extern "C" __global__ void right(const float* x, float* y) {
    __shared__ float s[64];
    s[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    y[threadIdx.x] = s[63 - threadIdx.x];
}
extern "C" __global__ void wrong(const float* x, float* y) {
    __shared__ float s[64];
    s[threadIdx.x] = x[threadIdx.x];
    y[threadIdx.x] = s[63 - threadIdx.x];
}
""")
    x, y = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
    for seed in range(5):
        shim.launch("right", 1, 64, x, y, seed=seed)
        np.testing.assert_array_equal(y, x[::-1])
        shim.launch("wrong", 1, 64, x, y, seed=seed)
        assert np.isnan(y).any()


def test_a_missing_second_barrier_depends_on_the_order(plant: Plant) -> None:
    # Each round shifts by one; without a barrier between reading and writing, some threads read shifted values.
    shim = plant("""
extern "C" __global__ void f(float* x) {
    __shared__ float s[64];
    s[threadIdx.x] = x[threadIdx.x];
    for (int round = 0; round < 3; ++round) {
        __syncthreads();
        s[threadIdx.x] = s[(threadIdx.x + 1) % 64];
    }
    x[threadIdx.x] = s[threadIdx.x];
}
""")
    results = set()
    for seed in range(3):
        x = np.arange(64, dtype=np.float32)
        shim.launch("f", 1, 64, x, seed=seed)
        results.add(x.tobytes())
    assert len(results) == 3


def test_shared_memory_starts_as_nan_in_every_block(plant: Plant) -> None:
    shim = plant("""
extern "C" __global__ void f(float* fixed, float* sized) {
    __shared__ float s[1];
    extern __shared__ float d[];
    fixed[blockIdx.x] = s[0];
    sized[blockIdx.x] = d[1];
    s[0] = d[1] = 1.0f;
}
""")
    fixed, sized = np.zeros(3, np.float32), np.zeros(3, np.float32)
    shim.launch("f", 3, 1, fixed, sized, shared_bytes=8)
    assert np.isnan(fixed).all()
    assert np.isnan(sized).all()


ACCESS = """
extern "C" __global__ void write(float* x, float* y, int at) { x[at] = 1.0f; }
extern "C" __global__ void add(float* x, float* y, int at) { x[at] += 1.0f; }
extern "C" __global__ void read(float* x, float* y, int at) { y[0] = x[at]; }
"""


def test_an_access_out_of_bounds_is_caught(plant: Plant) -> None:
    shim = plant(ACCESS)
    for kernel, size, at, reason in [
        ("write", 4, 4, r"out of bounds.* at byte 16 of x \(16 bytes\)"),
        ("read", 4, 4, "out of bounds.* at byte 16 of x"),
        ("write", 5, 5, "x: written past its end"),
        ("add", 5, 5, "x: written past its end"),
        ("write", 5, -1, "x: written before its start"),
        ("add", 5, -1, "x: written before its start"),
        ("write", 5, -1100, "out of bounds.* at byte -4400 of x"),
        ("write", 5, 1 << 28, "out of bounds"),
    ]:
        with pytest.raises(KernelFault, match=reason):
            shim.launch(kernel, 1, 1, np.ones(size, np.float32), np.zeros(1, np.float32), at)


def test_a_small_read_out_of_bounds_gives_nan(plant: Plant) -> None:
    shim = plant(ACCESS)
    for at in (-1, 5):
        y = np.zeros(1, np.float32)
        shim.launch("read", 1, 1, np.ones(5, np.float32), y, at)
        assert np.isnan(y).all()


def test_dynamic_shared_memory_has_an_end(plant: Plant) -> None:
    shim = plant("""
extern "C" __global__ void f(int at) {
    extern __shared__ __align__(16) float d[];
    d[at] = 1.0f;
}
""")
    shim.launch("f", 1, 1, 7, shared_bytes=32)
    with pytest.raises(KernelFault, match="at byte 32 of dynamic shared memory"):
        shim.launch("f", 1, 1, 8, shared_bytes=32)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("__shared__ float s[8]; s[x[0]] = 0.0f;", "index outside an array"),
        ("x[0] = 2147483647 + x[0];", "integer overflow"),
        ("x[0] = 1 / (x[0] - 8);", "undefined behaviour|division by zero"),
        ("*(int*)(long long)(x[0] - 8) = 0;", "null or misaligned pointer"),
        ("*(float4*)(x + 1) = make_float4(0, 0, 0, 0);", "misaligned pointer"),
    ],
)
def test_undefined_behaviour_is_caught(plant: Plant, body: str, reason: str) -> None:
    shim = plant(f'extern "C" __global__ void f(int* x) {{ {body} }}')
    with pytest.raises(KernelFault, match=reason):
        shim.launch("f", 1, 1, np.full(8, 8, np.int32))


def test_a_barrier_and_a_shuffle_that_wait_for_each_other_are_reported(plant: Plant) -> None:
    shim = plant("""
extern "C" __global__ void f(int* x) {
    if (threadIdx.x < 16) {
        x[threadIdx.x] = __shfl_xor_sync(0xffffffff, x[threadIdx.x], 1);
    } else {
        __syncthreads();
    }
}
""")
    with pytest.raises(KernelFault, match=r"wait for each other.*__shfl_xor_sync in line 4.*__syncthreads in line 6"):
        shim.launch("f", 1, 32, np.zeros(32, np.int32))


def test_two_barriers_are_not_one(plant: Plant) -> None:
    shim = plant("""
extern "C" __global__ void f() {
    if (threadIdx.x < 16)
        __syncthreads();
    else
        __syncthreads();
}
""")
    with pytest.raises(KernelFault, match=r"__syncthreads in line 4.*__syncthreads in line 6"):
        shim.launch("f", 1, 32)


@pytest.mark.parametrize("mask", ["0xffff0000u", "threadIdx.x < 8 ? 0xffffffffu : 0xffu"])
def test_lanes_that_disagree_on_who_takes_part_are_reported(plant: Plant, mask: str) -> None:
    shim = plant(f'extern "C" __global__ void f() {{ __shfl_sync({mask}, 1.0f, 0); }}')
    with pytest.raises(KernelFault, match="wait for each other"):
        shim.launch("f", 1, 32)


def test_a_lane_that_has_ended_sends_poison(plant: Plant) -> None:
    shim = plant("""
extern "C" __global__ void f(float* y) {
    if (threadIdx.x == 3) return;
    y[threadIdx.x] = __shfl_sync(0xffffffff, 1.0f, threadIdx.x < 16 ? 3 : 4);
}
""")
    y = np.zeros(32, np.float32)
    shim.launch("f", 1, 32, y)
    assert np.isnan(np.delete(y[:16], 3)).all()
    assert (y[16:] == 1).all()


def test_what_a_kernel_does_to_its_process_stays_there(plant: Plant) -> None:
    shim = plant("""
extern "C" void* stdout;
extern "C" __global__ void damage(float* x) {
    for (long long* at = (long long*)stdout; at != (long long*)stdout + 20; ++at) *at = -1;
    x[0] = 2.0f;
}
extern "C" __global__ void overflow(float* x) {
    volatile char stack[1 << 24];
    for (int i = (1 << 24) - 1; i >= 0; i -= 512) stack[i] = 1;
    x[0] = stack[0];
}
extern "C" __global__ void right(float* x) { x[0] += 1.0f; }
""")
    x = np.zeros(1, np.float32)
    shim.launch("damage", 1, 1, x)
    with pytest.raises(KernelFault, match="overflow: ended by SIGSEGV"):
        shim.launch("overflow", 1, 1, x)
    shim.launch("right", 1, 1, x)
    assert x[0] == 3


def test_a_kernel_that_never_ends_is_stopped(plant: Plant) -> None:
    shim = plant("""
extern "C" __global__ void f(int* flag) {
    while (*static_cast<volatile int*>(flag) == 0) {}
}
""")
    with pytest.raises(KernelFault, match="still running"):
        shim.launch("f", 1, 1, np.zeros(1, np.int32), limit_s=1)
