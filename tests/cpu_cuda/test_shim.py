"""The shim keeps CUDA's promises: copies are there once they are waited for, and launches wait for those before."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.cpu_cuda import executor
from tests.cpu_cuda.conftest import Plant
from tests.cpu_cuda.guarded import ALIGNMENT, Guarded
from tests.cpu_cuda.shim import KernelFault, Shim, requires_compiler

pytestmark = requires_compiler


def test_threads_that_have_ended_are_not_waited_for(plant: Plant) -> None:
    shim = plant("""
extern "C" __global__ void f(int* sums) {
    __shared__ int s[40];
    if (threadIdx.x >= 40) return;
    s[threadIdx.x] = threadIdx.x;
    __syncthreads();
    int sum = s[39 - threadIdx.x];
    __syncwarp();
    sums[threadIdx.x] = sum;
}
""")
    sums = np.zeros(40, np.int32)
    shim.launch("f", 1, 64, sums)
    np.testing.assert_array_equal(sums, np.arange(40)[::-1])


def test_shuffles_and_votes_as_the_programming_guide_defines_them(plant: Plant) -> None:
    shim = plant("""
extern "C" __global__ void f(double* broadcast, int* flip, int* down, int* up, unsigned* votes) {
    const int lane = threadIdx.x % 32, t = threadIdx.x;
    broadcast[t] = __shfl_sync(0xffffffff, 0.5 * t, 5);
    flip[t] = __shfl_xor_sync(0xffffffff, t, 3);
    down[t] = __shfl_down_sync(0xffffffff, t, 3, 8);
    up[t] = __shfl_up_sync(0xffffffff, t, 3);
    const bool odd = lane % 2;
    votes[t] = __ballot_sync(0xffffffff, odd);
    votes[64 + t] = __any_sync(0xffffffff, lane == 31) + 2 * __all_sync(0xffffffff, lane < 31);
}
""")
    t = np.arange(64)
    lane = t % 32
    broadcast, votes = np.zeros(64), np.zeros(128, np.uint32)
    flip, down, up = (np.zeros(64, np.int32) for _ in range(3))
    shim.launch("f", 1, 64, broadcast, flip, down, up, votes)
    np.testing.assert_array_equal(broadcast, 0.5 * (t - lane + 5))
    np.testing.assert_array_equal(flip, t ^ 3)
    np.testing.assert_array_equal(down, np.where(lane % 8 + 3 < 8, t + 3, t))
    np.testing.assert_array_equal(up, np.where(lane >= 3, t - 3, t))
    assert (votes[:64] == 0xAAAAAAAA).all()
    assert (votes[64:] == 1).all()


def test_halves_of_a_warp_shuffle_by_themselves(plant: Plant) -> None:
    shim = plant("""
extern "C" __global__ void f(float* x) {
    const unsigned mask = threadIdx.x < 16 ? 0x0000ffffu : 0xffff0000u;
    for (int flip = 8; flip > 0; flip /= 2) x[threadIdx.x] += __shfl_xor_sync(mask, x[threadIdx.x], flip);
}
""")
    x = np.arange(32, dtype=np.float32)
    shim.launch("f", 1, 32, x)
    np.testing.assert_array_equal(x, np.repeat([sum(range(16)), sum(range(16, 32))], 16))


@pytest.mark.parametrize(("word", "dtype"), [("int", np.int32), ("float", np.float32), ("double", np.float64)])
def test_atomics_add_up_over_blocks(plant: Plant, word: str, dtype: type) -> None:
    shim = plant(f'extern "C" __global__ void f({word}* sum) {{ atomicAdd(sum, threadIdx.x + 10 * blockIdx.y); }}')
    total: np.ndarray = np.zeros(1, dtype)
    shim.launch("f", (2, 3), (4, 2), total)
    assert total[0] == 2 * 3 * 2 * (0 + 1 + 2 + 3) + 2 * 8 * (0 + 10 + 20)


def test_indices_and_sizes_in_three_dimensions(plant: Plant) -> None:
    shim = plant("""
extern "C" __global__ void f(int* x) {
    const int thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    const int block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    x[block * blockDim.x * blockDim.y * blockDim.z + thread] += 1;
}
""")
    x = np.zeros(2 * 3 * 4 * 5 * 3 * 2, np.int32)
    shim.launch("f", (2, 3, 4), (5, 3, 2), x)
    assert (x == 1).all()


def test_one_array_under_two_names_is_one_array(plant: Plant) -> None:
    shim = plant('extern "C" __global__ void f(const float* x, float* y) { y[threadIdx.x] = 2 * x[threadIdx.x]; }')
    x = np.array([1, 2, 3], np.float32)
    shim.launch("f", 1, 3, x, x)
    np.testing.assert_array_equal(x, [2, 4, 6])


def test_arguments_that_do_not_fit_the_signature_are_refused(plant: Plant) -> None:
    shim = plant('extern "C" __global__ void f(const float* x, int count) {}')
    with pytest.raises(TypeError, match="takes 2 arguments, was given 1"):
        shim.launch("f", 1, 1, np.ones(1, np.float32))
    with pytest.raises(TypeError, match=r"x is const float\*, was given an array of float64"):
        shim.launch("f", 1, 1, np.ones(3), 3)
    with pytest.raises(TypeError, match="count is int, was given a ndarray"):
        shim.launch("f", 1, 1, np.ones(1, np.float32), np.ones(1, np.int32))


def test_the_shim_can_be_used_after_a_fault(plant: Plant) -> None:
    shim = plant('extern "C" __global__ void f(float* x, int at) { x[at] = 1.0f; }')
    x = np.zeros(4, np.float32)
    for _ in range(3):
        with pytest.raises(KernelFault):
            shim.launch("f", 1, 1, x, 4)
        shim.launch("f", 1, 1, x, 3)
    np.testing.assert_array_equal(x, [0, 0, 0, 1])


@pytest.mark.parametrize("count", [0, 1, 3, 4, 1024, 1025])
def test_a_guarded_array_is_an_aligned_copy(count: int) -> None:
    values = np.arange(count, dtype=np.float64)
    guarded = Guarded(values, np.zeros(1 << 15, np.uint8), 4096)
    np.testing.assert_array_equal(guarded.array, values)
    assert guarded.place % ALIGNMENT == 0
    assert guarded.damage() == ""


TURN = """
extern "C" __global__ void f(unsigned* arrived, int* order) {
    extern __shared__ int mine[];
    mine[threadIdx.x] = blockIdx.x;
    __syncthreads();
    if (threadIdx.x == 0) {
        while (*static_cast<volatile unsigned*>(arrived) != blockIdx.x) __nanosleep(0);
        order[blockIdx.x] = mine[blockDim.x - 1];
        atomicAdd(arrived, 1u);
    }
    __syncthreads();
}
"""


def test_blocks_of_a_cooperative_launch_run_at_once_each_with_memory_of_its_own(plant: Plant) -> None:
    shim = plant(TURN)
    for seed in range(3):
        arrived, order = np.zeros(1, np.uint32), np.full(5, -1, np.int32)
        shim.launch("f", 5, 40, arrived, order, seed=seed, shared_bytes=160, cooperative=True)
        np.testing.assert_array_equal(order, np.arange(5))


def test_a_block_that_waits_for_one_that_does_not_run_is_caught(plant: Plant) -> None:
    shim = plant(TURN)
    with pytest.raises(KernelFault, match=r"wait for ever: some at __nanosleep in line 7, .*__syncthreads in line 11"):
        shim.launch("f", 5, 40, np.zeros(1, np.uint32), np.zeros(5, np.int32), seed=1, shared_bytes=160)


NEIGHBOURS = """
#include "device/blocks_together.cuh"
extern "C" __global__ void f(float* seen, int further) {
    extern __shared__ float mine[];
    mine[threadIdx.x] = 100 * clusterid_x() + 10 * cluster_ctarank() + threadIdx.x;
    barrier_cluster_aligned();  // all have written
    const int other = further < 3 ? (cluster_ctarank() + further) % cluster_nctarank() : further;
    seen[blockIdx.x * blockDim.x + threadIdx.x] = ld_shared_cluster(mine + blockDim.x - 1 - threadIdx.x, other);
    barrier_cluster_aligned();  // all have read
}
"""
SEEN = [100.0 * group + 10 * ((rank + 1) % 3) + 3 - i for group in (0, 1) for rank in (0, 1, 2) for i in range(4)]


def see_neighbours(shim: Shim, seed: int, further: int = 1) -> list[float]:
    """The values that threads read from another block: two clusters of three blocks of four threads."""
    seen = np.zeros(24, np.float32)
    shim.launch("f", 2, 4, seen, further, seed=seed, shared_bytes=16, cluster=3)
    return seen.tolist()


def test_blocks_of_a_cluster_meet_and_read_each_other_s_memory(plant: Plant) -> None:
    shim = plant(NEIGHBOURS)
    assert all(see_neighbours(shim, seed) == SEEN for seed in range(5))


OWN = """
#include "device/cluster.cuh"
extern "C" __global__ void f(int* seen) {
    __shared__ int own, sent;
    __shared__ Barrier is_there;
    if (threadIdx.x == 0) {
        own = cluster_ctarank();
        mbarrier_init(is_there, 1);
        mbarrier_arrive_expect_tx(is_there, 4);
    }
    barrier_cluster();
    const int next = (own + 1) % 3;
    if (threadIdx.x == 1) st_async(mapa(shared_address(&sent), next), mapa(shared_address(&is_there), next), own);
    mbarrier_wait_parity(is_there, 0);
    seen[blockIdx.x * blockDim.x + threadIdx.x] = 10 * own + sent;
}
"""


def test_blocks_of_a_cluster_have_variables_of_their_own_to_which_others_send(plant: Plant) -> None:
    seen = np.zeros(12, np.int32)
    plant(OWN).launch("f", 2, 2, seen, cluster=3)
    assert seen.tolist() == 2 * [2, 2, 10, 10, 21, 21]


def test_blocks_that_read_before_all_have_written_are_caught(plant: Plant) -> None:
    shim = plant(NEIGHBOURS.replace("barrier_cluster_aligned();  // all have written", ""))
    assert any(see_neighbours(shim, seed) != SEEN for seed in range(5))


@pytest.mark.parametrize("seed", range(3))
def test_memory_of_a_block_that_has_ended_is_caught(plant: Plant, seed: int) -> None:
    shim = plant(NEIGHBOURS.replace("barrier_cluster_aligned();  // all have read", ""))
    with pytest.raises(KernelFault, match="shared memory of a block that has ended"):
        see_neighbours(shim, seed)


def test_a_block_that_is_not_in_the_cluster_is_caught(plant: Plant) -> None:
    shim = plant(NEIGHBOURS)
    with pytest.raises(KernelFault, match="shared memory of a block that is not in the cluster"):
        see_neighbours(shim, seed=0, further=3)


def test_an_executor_that_does_not_answer_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "silent"
    program.write_text("#!/bin/sh\necho 4096\nexec sleep 60\n")
    program.chmod(0o755)
    monkeypatch.setattr(executor, "_SLACK_S", 0)
    silent = executor.Executor(program)
    request = executor.Request(
        tmp_path, "f", (1, 1, 1), (1, 1, 1), 0, 0, False, 0, 0, limit_s=1, guards=(), pages=(), arguments=()
    )
    try:
        assert silent.execute(request) == executor.Fault("ended by SIGKILL")
    finally:
        silent._process.kill()
        silent.close()


# Asynchronous copies: they are there once the thread has waited, and not before.


COPIES = """
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


def run_copies(plant: Plant, body: str) -> np.ndarray:
    x, y = np.arange(256, dtype=np.float32), np.full(256, -1, np.float32)
    plant(COPIES + body).launch("f", 1, 32, x, y)
    return y.reshape(32, 2, 4)


def test_they_are_there_once_they_are_waited_for(plant: Plant) -> None:
    copied = run_copies(plant, f"{TWO_GROUPS} cp_async_wait_all(); {TAKE_BOTH}")
    np.testing.assert_array_equal(copied[:, 0], np.arange(256).reshape(32, 2, 4)[:, 0])
    np.testing.assert_array_equal(copied[:, 1], 0)  # elements that do not exist


def test_nothing_is_there_before(plant: Plant) -> None:
    assert np.isnan(run_copies(plant, f"{TWO_GROUPS} {TAKE_BOTH}")).all()


def test_the_youngest_groups_are_not_waited_for(plant: Plant) -> None:
    copied = run_copies(plant, f"{TWO_GROUPS} cp_async_wait_group<1>(); {TAKE_BOTH}")
    assert not np.isnan(copied[:, 0]).any()
    assert np.isnan(copied[:, 1]).all()


def test_what_belongs_to_no_group_yet_is_not_waited_for(plant: Plant) -> None:
    copied = run_copies(plant, f"cp_async_16(own, x); cp_async_wait_group<0>(); {TAKE_BOTH}")
    assert np.isnan(copied[:, 0]).all()


def test_a_misaligned_one_is_refused(plant: Plant) -> None:
    with pytest.raises(KernelFault, match="misaligned copy"):
        run_copies(plant, f"cp_async_16(own, x + 1); {TAKE_BOTH}")


# Copies of whole runs: they are there once a thread has waited for their barrier, and not before.


BULK_COPIES = """#include "device/bulk_copies.cuh"
extern "C" __global__ void f(const float* x, float* y) {
    __shared__ float4 memory[64];
    __shared__ Barrier barrier;
    float* own = reinterpret_cast<float*>(memory);
    if (threadIdx.x == 0) mbarrier_init(barrier, 1);
    __syncthreads();"""
FETCH = "if (threadIdx.x == 0) { mbarrier_arrive_expect_tx(barrier, 256); cp_async_bulk(own, barrier, x, 256); }"
WAIT = "mbarrier_wait_parity(barrier, 0);"
TAKE = "for (int i = 0; i < 2; ++i) y[2 * threadIdx.x + i] = own[2 * threadIdx.x + i]; }"


def run_bulk_copies(plant: Plant, body: str) -> np.ndarray:
    x, y = np.arange(64, dtype=np.float32), np.full(64, -1, np.float32)
    plant(BULK_COPIES + body).launch("f", 1, 32, x, y, limit_s=5)
    return y


HALVES = "if (threadIdx.x < 2) cp_async_bulk(own + 32 * threadIdx.x, barrier, x + 32 * threadIdx.x, 128);"


@pytest.mark.parametrize("copies", [FETCH, f"if (threadIdx.x == 0) mbarrier_arrive_expect_tx(barrier, 256); {HALVES}"])
def test_they_are_there_once_their_barrier_is_waited_for_and_not_before(plant: Plant, copies: str) -> None:
    np.testing.assert_array_equal(run_bulk_copies(plant, copies + WAIT + TAKE), np.arange(64))
    assert np.isnan(run_bulk_copies(plant, f"{copies} __syncthreads(); {TAKE}")).all()


def test_a_misaligned_bulk_copy_is_refused(plant: Plant) -> None:
    with pytest.raises(KernelFault, match="misaligned"):
        run_bulk_copies(plant, FETCH.replace("barrier, x,", "barrier, x + 1,") + WAIT + TAKE)


# Dependent launches: a kernel that does not wait for the one before it is caught.


DEPENDENT = '#include "device/dependent.cuh"\nextern "C" __global__ void f(const float* x, float* y) {'


def run_dependent(plant: Plant, body: str, *, dependent: bool = True) -> np.ndarray:
    x, y = np.arange(128, dtype=np.float32), np.zeros(128, np.float32)
    plant(f"{DEPENDENT} const int i = blockIdx.x * 64 + threadIdx.x; {body} }}").launch(
        "f", 2, 64, x, y, dependent=dependent
    )
    return y


@pytest.mark.parametrize(
    "body",
    [
        "griddepcontrol_launch_dependents(); griddepcontrol_wait(); y[i] = x[i];",
        "griddepcontrol_wait(); y[i] = x[i]; griddepcontrol_launch_dependents();",
        "griddepcontrol_wait(); griddepcontrol_wait(); y[i] = x[i];",
        "__shared__ float s[64]; s[63 - threadIdx.x] = i; __syncthreads(); const float k = s[63 - threadIdx.x]; "
        "griddepcontrol_wait(); y[i] = x[i] + 0.0f * k;",
    ],
    ids=["before", "after", "twice", "behind a barrier"],
)
def test_a_kernel_that_waits_does_what_it_does_anyway(plant: Plant, body: str) -> None:
    np.testing.assert_array_equal(run_dependent(plant, body), np.arange(128))


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("y[i] = x[i];", "touched before it waited for the kernel before, .* of x "),
        ("y[i] = 1.0f;", "touched before it waited for the kernel before, .* of y "),
        ("const float k = x[i]; griddepcontrol_wait(); y[i] = k;", "touched before it waited .* of x "),
        ("griddepcontrol_launch_dependents(); y[i] = x[i]; griddepcontrol_wait();", "touched before .* of x "),
        ("if (threadIdx.x > 0) griddepcontrol_wait(); y[i] = x[i];", "touched before it waited .* of x "),
        ("griddepcontrol_launch_dependents();", "ended without waiting for the kernel before of block"),
        ("if (blockIdx.x > 0) griddepcontrol_wait();", r"ended without waiting .* of block \(0, 0, 0\)"),
        ("if (threadIdx.x < 32) griddepcontrol_wait(); __syncthreads(); y[i] = x[i];", "others for threads"),
    ],
)
def test_a_kernel_that_does_not_is_caught(plant: Plant, body: str, reason: str) -> None:
    with pytest.raises(KernelFault, match=reason):
        run_dependent(plant, body)
    run_dependent(plant, body, dependent=False)  # as an ordinary launch it shows nothing


def test_a_block_may_meet_while_another_waits(plant: Plant) -> None:
    x, y = np.arange(128, dtype=np.float32), np.zeros(128, np.float32)
    body = "if (blockIdx.x == 0) __syncthreads(); griddepcontrol_wait(); y[i] = x[i];"
    plant(f"{DEPENDENT} const int i = blockIdx.x * 64 + threadIdx.x; {body} }}").launch(
        "f", 1, 64, x, y, dependent=True, cluster=2
    )
    np.testing.assert_array_equal(y, x)


def test_what_it_faulted_on_can_be_read_again(plant: Plant) -> None:
    shim = plant(f"{DEPENDENT} if (y[0] == 0) griddepcontrol_wait(); y[0] = x[0]; }}")
    with pytest.raises(KernelFault, match="touched before"):
        shim.launch("f", 1, 1, np.ones(1, np.float32), np.zeros(1, np.float32), dependent=True)
    y = np.zeros(1, np.float32)
    shim.launch("f", 1, 1, np.ones(1, np.float32), y)
    assert y[0] == 1
