"""A profile in numbers: kernels, calls of the API, and where the time of an epoch goes."""

from __future__ import annotations

import re

import pytest

from common.cuda.driver import Multiprocessor
from common.problem import Problem
from ladder.measure.profiled import sample_of
from ladder.profile.api_names import short_name
from ladder.profile.kernel_kinds import declared, kind_of
from ladder.profile.summary import excerpt, occupancy, summarise, with_bytes, without_tool
from ladder.profile.time_split import SplitNs, merged, split, union, waiting_calls
from ladder.profile.trace import FROM_PYTHON, Call, Copy, Kernel, Trace, Window
from ladder.records.profile import CallUse, CopyUse, Split
from reports.facts.profiles import overlap
from tests.cpu_cuda.kernel_sources import KERNELS_FOLDER, kernels_in

H200 = Multiprocessor(
    count=132, threads=2048, shared_bytes=233472, registers=65536, blocks=32, reserved_shared_bytes=1024
)
STEPS = 4


def epoch_of(number: int, start: int, totals: bool) -> Trace:
    """Four steps of 10 us: a product (4 us) and an update (2 us), launched singly; with `totals`, also a read-back."""
    trace = Trace(windows=[Window(number, start, start + STEPS * 10_000)])
    for step in range(STEPS):
        at, id_ = start + step * 10_000, start + step * 10
        trace.calls += [
            Call("cuLaunchKernelEx", at, at + 1000, id_, 7),
            Call("cuLaunchKernelEx", at + 1000, at + 2000, id_ + 1, 7),
        ]
        trace.kernels += [
            Kernel("gemm_naive", at + 2000, at + 6000, id_, registers=32, blocks=8, threads=256),
            Kernel("sgd_update", at + 6500, at + 8500, id_ + 1, registers=16, blocks=31, threads=256),
        ]
        if totals:
            trace.copies.append(Copy("device to host", at + 8600, at + 8900, id_ + 2, 16))
            trace.calls.append(Call("cudaMemcpyAsync", at + 2000, at + 9500, id_ + 2, 7))
    end = start + STEPS * 10_000
    trace.calls.append(Call("cuCtxSynchronize", end - 400, end, start + 999, 7))
    return trace


@pytest.fixture
def trace() -> Trace:
    """An epoch without totals, a gap, and an epoch with totals."""
    both = [epoch_of(8, 0, totals=False), epoch_of(9, 100_000, totals=True)]
    between = Kernel("stray", 70_000, 80_000, 5)
    return Trace(
        windows=[window for one in both for window in one.windows],
        kernels=[*both[0].kernels, between, *both[1].kernels],
        copies=[copy for one in both for copy in one.copies],
        calls=[call for one in both for call in one.calls],
    )


def test_copies_beside_kernels_are_hidden() -> None:
    kernels = [Kernel("k", 1000, 5000, 1), Kernel("k", 4000, 7000, 2)]
    copies = [
        Copy("host to device", 0, 2000, 3, 64),
        Copy("host to device", 6000, 9000, 4, 64),
        Copy("fill", 2, 3, 5, 1),
    ]
    trace = Trace(windows=[Window(0, 0, 10_000)], kernels=kernels, copies=copies)
    fill, copied = summarise(trace, (1.0,), 2, "cupti", 5.0, H200).copies
    assert (copied.us_per_step, copied.hidden_us_per_step) == (2.5, 1.0)
    assert (fill.us_per_step, fill.hidden_us_per_step) == (0.0005, 0.0)


def test_a_profile_is_the_weighted_mean_of_its_epochs(trace: Trace) -> None:
    profile = summarise(trace, (0.75, 0.25), STEPS, "cupti", 9.0, H200)
    assert profile.epochs == [8, 9]
    assert profile.step_us == pytest.approx(10)
    assert profile.plain_step_us == pytest.approx(9)
    assert profile.slowdown == pytest.approx(1 / 9)
    assert profile.kernels_per_step == 2
    assert profile.launches_per_step == 2
    assert profile.graph_launches_per_epoch == 0
    assert profile.syncs_per_epoch == pytest.approx(0.25 * STEPS)
    assert profile.sync_us_per_step == pytest.approx(0.25 * 7.5)
    assert profile.busy_share == pytest.approx(0.75 * 0.6 + 0.25 * 0.63)
    assert profile.copies == [CopyUse("device to host", 0.25 * STEPS, 0.25 * STEPS * 16, 0.25 * 0.3)]
    assert profile.calls[0] == CallUse("cuLaunchKernelEx", 8, 2)
    assert [(use.name, use.kind, use.place, use.us_each) for use in profile.kernels] == [
        ("gemm_naive", "gemm", 0, 4),
        ("sgd_update", "update", 1, 2),
    ]
    assert profile.kernels[0].occupancy == 1
    assert (profile.overlap_us, overlap(profile)) == (0, "")


def test_the_parts_add_up_with_the_tool_and_without_it(trace: Trace) -> None:
    profile = summarise(trace, (0.75, 0.25), STEPS, "cupti", 9.0)
    assert profile.seen.total_us == pytest.approx(profile.step_us)
    assert profile.split.total_us == pytest.approx(profile.plain_step_us)
    assert profile.split.kernels_us == profile.seen.kernels_us == pytest.approx(6)
    assert profile.seen.queued_us == pytest.approx(0.5)
    of_epochs = (1.5 / 4, (4 * 0.1 + 3 * 0.6 + 1.1) / 4)  # only the end; each read-back while the device is idle
    assert profile.seen.waiting_us == pytest.approx(0.75 * of_epochs[0] + 0.25 * of_epochs[1])


def test_a_tools_cost_is_taken_out_of_idle_time_first() -> None:
    seen = Split(6, 1, 1, 2, 2)
    assert without_tool(seen, 9.5) == Split(6, 1, 0.5, 1, 1)
    assert without_tool(seen, 3.5) == Split(3, 0.5, 0, 0, 0)
    assert without_tool(Split(0, 0, 0, 1, 3), 8) == Split(0, 0, 0, 2, 6)


def test_overlapping_kernels_count_once_in_the_parts() -> None:
    # Two steps of three kernels: each starts 1 us after the one before it did, and ends 4 us after that one has ended.
    names = 2 * ["tile_product_f32", "softmax_xent", "bias_update"]
    kernels = [Kernel(name, 1000 * at, 4000 * (at + 1), 1) for at, name in enumerate(names)]
    calls = [Call("cudaGraphLaunch", 0, 0, 1, 7), Call("cuCtxSynchronize", 0, 24_000, 2, 7)]
    trace = Trace(windows=[Window(0, 0, 24_000)], kernels=kernels, calls=calls)
    profile = summarise(trace, (1.0,), 2, "cupti", 12.0, H200)
    assert profile.seen == Split(12, 0, 0, 0, 0)
    assert profile.busy_share == 1
    assert [kernel.place for kernel in profile.kernels] == [0, 1, 2]
    assert profile.overlap_us == sum(kernel.us_per_step for kernel in profile.kernels) - 12
    assert "add up to 22.5 us more" in overlap(profile)
    bars, length_us = excerpt(trace, 2)
    assert len(bars) > len(names)
    assert all(bar.duration_us >= 0 and bar.start_us + bar.duration_us <= length_us for bar in bars)


def test_kernels_are_summed_by_name_if_steps_differ() -> None:
    trace = epoch_of(0, 0, totals=False)
    trace.kernels[3] = Kernel("other", 16_500, 18_500, 11)
    profile = summarise(trace, (1.0,), STEPS, "cupti", 10.0)
    assert [(use.name, use.place, use.per_step) for use in profile.kernels] == [
        ("gemm_naive", None, 1),
        ("sgd_update", None, 0.75),
        ("other", None, 0.25),
    ]


def test_the_excerpt_begins_with_the_launch_of_a_step() -> None:
    spans, length_us = excerpt(epoch_of(0, 0, totals=True), STEPS)
    assert length_us == pytest.approx(32)
    assert min(span.start_us for span in spans) == 0
    assert {(span.row, span.kind) for span in spans} == {
        ("host", "launch"),
        ("host", "wait"),
        ("gpu", "gemm"),
        ("gpu", "update"),
        ("gpu", "copy"),
    }
    assert all(0 <= span.start_us <= span.start_us + span.duration_us <= length_us + 1e-9 for span in spans)
    assert sum(span.name == "gemm_naive" for span in spans) == 3


def test_a_kernel_that_runs_an_epoch_has_no_excerpt() -> None:
    epoch = Trace(windows=[Window(0, 1000, 41_000)], kernels=[Kernel("persistent_grid", 2000, 40_000, 1)])
    assert excerpt(epoch, 20) == ([], 0.0)


@pytest.mark.parametrize(
    ("metrics_every", "validate_every", "sample"),
    [
        (10, 0, {8: 0.9, 9: 0.1}), (7, 0, {5: 0.9, 6: 0.1}), (1, 0, {0: 0.5, 1: 0.5}), (30, 0, {28: 1.0, 29: 0.0}),
        (10, 1, {8: 0.9, 9: 0.1}), (10, 5, {0: 0.8, 4: 0.1, 9: 0.1}), (1, 20, {0: 0.95, 19: 0.05}),
    ],
)  # fmt: skip
def test_few_epochs_represent_a_whole_run(metrics_every: int, validate_every: int, sample: dict[int, float]) -> None:
    problem = Problem(4, 2, epochs=20, metrics_every=metrics_every, validate_every=validate_every)
    found = sample_of(problem, 20)
    assert dict(zip(found.epochs, found.weights, strict=True)) == sample


@pytest.mark.parametrize(
    ("registers", "shared_bytes", "threads", "blocks"),
    [
        (32, 0, 256, 8),  # by threads
        (80, 25600, 128, 6),  # by registers: 80 * 32 = 2560 a warp, 25 warps, 24 in fours
        (32, 102400, 128, 2),  # by shared memory: 103424 of 233472 a block
        (16, 0, 32, 32),  # by blocks
        (255, 0, 1024, 0),  # 8160 -> 8192 a warp: 8 warps, and one block has 32
    ],
)
def test_occupancy_follows_the_calculator(registers: int, shared_bytes: int, threads: int, blocks: int) -> None:
    assert occupancy(H200, registers, shared_bytes, threads) == blocks * (threads // 32) / 64


def test_a_rungs_kernels_have_the_bytes_of_their_operations() -> None:
    problem = Problem(inputs=784, classes=10, batch_size=128)
    names = ["cutlass_sgemm", "splitKreduce_kernel", "add_bias", "softmax_fw", "softmax_xent_backward"]
    names += ["softmax_xent_totals", "sgemm", "bias_gradient", "sgd_update"]

    def bytes_of(names: list[str]) -> list[int | None]:
        kernels = [Kernel(name, 10 * at, 10 * at + 5, at) for at, name in enumerate(names)]
        trace = Trace(windows=[Window(0, 0, 100)], kernels=kernels)
        profile = with_bytes(summarise(trace, (1.0,), 1, "cupti", 0.1), problem)
        return [use.bytes for use in profile.kernels]

    logits, weights = 128 * 10, 784 * 10
    assert bytes_of(names) == [
        4 * (128 * 784 + weights + logits), None, 4 * (2 * logits + 10), 4 * 2 * logits, 4 * (2 * logits + 128),
        4 * (logits + 128) + 32, 4 * (128 * 784 + logits + weights), 4 * (logits + 10), 4 * 3 * (weights + 10),
    ]  # fmt: skip
    without_totals = [name for name in names if "totals" not in name]
    assert None not in (bytes_of(without_totals)[0], bytes_of(without_totals)[-1])
    assert set(bytes_of(names[:-1])) == {None}  # one update is missing: operations may be fused


def test_a_core_that_has_no_network_left_waits_for_the_other() -> None:
    kernels = [Kernel("gemm", 0, 100, 1, thread=1), Kernel("gemm", 0, 40, 2, thread=2)]
    calls = [Call(FROM_PYTHON, 0, 100, 1, 1), Call(FROM_PYTHON, 0, 40, 2, 2)]
    profile = summarise(Trace([Window(0, 0, 100)], kernels, [], calls), (1.0,), 1, "stamps", 0.1)
    assert (profile.seen.kernels_us, profile.seen.waiting_us, profile.seen.launching_us) == (0.07, 0.03, 0.0)


CPU_KERNELS = KERNELS_FOLDER.parent / "cpu" / "kernels"
TRITON_KERNELS = KERNELS_FOLDER.parent / "languages" / "triton_kernels.py"


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("gemm_naive", "gemm_naive"),
        ("void splitKreduce_kernel<(int)32, int, float>(cublasSplitKParams<T6>, const T4 *)", "splitKreduce_kernel"),
        (
            "void cutlass::Kernel2<cutlass_80_simt_sgemm_128x32_8x5_nn_align1>(cutlass_80_simt_sgemm::Params)",
            "cutlass_80_simt_sgemm_128x32_8x5_nn_align1",
        ),
        (
            "_ZN7cutlass7Kernel2I42cutlass_80_simt_sgemm_128x32_8x5_nn_align1EEvNT_6ParamsE",
            "cutlass_80_simt_sgemm_128x32_8x5_nn_align1",
        ),
        ("void at::native::(anonymous namespace)::fill<at::Bar<float (*)(int)>, 4>(int, T2)", "fill"),
        ("void at::native::<unnamed>::fill_kernel<2>(int)", "fill_kernel"),
        ("kernel_cutlass_cute_softmax_xent_tensorptrf32gmemo12810101_tensorptri32gmemo1281_0", "cute_softmax_xent"),
        ("_Znonsense", "_Znonsense"),
    ],
)
def test_a_kernel_has_a_short_name(name: str, short: str) -> None:
    assert short_name(name) == short


def test_every_kernel_of_ours_declares_its_kind() -> None:
    on_gpu = {kernel.name for kernel in kernels_in(KERNELS_FOLDER)}
    on_cpu = {one for file in CPU_KERNELS.glob("*.py") for one in re.findall(r"@kernel.*\ndef (\w+)", file.read_text())}
    in_python = set(re.findall(r"@triton.jit\ndef (triton_\w+)", TRITON_KERNELS.read_text()))
    in_python |= set(re.findall(r"@cute.kernel\ndef (\w+)", TRITON_KERNELS.with_name("cute_kernels.py").read_text()))
    assert on_cpu
    assert len(in_python) == 4
    assert set(declared()) == on_gpu | on_cpu | in_python
    assert (kind_of("tile_product_split"), kind_of("cluster_mlp"), kind_of("spread")) == ("gemm", "fused", "gemm")


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("gemm", "cutlass_80_simt_sgemm_128x32_8x5_nn_align1 splitKreduce_kernel gemv2T_kernel_val triton_mm "
         "nvjet_sm90_tst_8x64_64x16_4x1_v_bz_bias_TNN triton_tem_fused_mm_3 gemm_fusion_dot_8"),
        ("fused", "triton_poi_fused_add_relu_0 triton_per_fused__log_softmax_1 input_reduce_fusion_3"),
        ("softmax", "softmax_fw_small_kernel nll_loss_forward_reduce_cuda_kernel_2d cunn_SoftMaxForward"),
        ("layer", "reduce_kernel"),
        ("update", "multi_tensor_apply_kernel"),
        ("other", "loop_transpose"),
    ],
)  # fmt: skip
def test_a_library_s_kernel_is_known_by_its_name(kind: str, names: str) -> None:
    assert {name: kind_of(name) for name in names.split()} == dict.fromkeys(names.split(), kind)


WINDOW = Window(0, 0, 100)


def kernel(start: int, end: int, correlation: int) -> Kernel:
    return Kernel("k", start, end, correlation)


def launch(start: int, end: int, correlation: int, thread: int = 1) -> Call:
    return Call("cuLaunchKernelEx", start, end, correlation, thread)


def test_a_thread_of_the_cpu_that_ends_first_waits_for_the_others() -> None:
    trace = Trace(kernels=[kernel(10, 40, 1)], calls=[Call(FROM_PYTHON, 10, 40, 1, 1)])
    assert split(trace, WINDOW, others_end=90) == SplitNs(kernels=30, launching=10 + 10, waiting=50)


@pytest.mark.parametrize(
    ("name", "copy", "waits"),
    [
        ("cuCtxSynchronize", None, True),
        ("cudaEventSynchronize", None, True),
        ("cudaMemcpyAsync", Copy("device to host", 12, 18, 1, 8), True),
        ("cudaMemcpyAsync", Copy("device to host", 30, 35, 1, 8), False),  # into pinned memory: the call returned first
        ("cudaMemcpyAsync", Copy("host to device", 12, 18, 1, 8), False),
        ("cudaStreamWaitEvent", None, False),
        ("cuLaunchKernel", None, False),
    ],
)
def test_which_calls_wait(name: str, copy: Copy | None, waits: bool) -> None:
    trace = Trace(calls=[Call(name, 10, 20, 1, 1)], copies=[copy] if copy else [])
    assert bool(waiting_calls(trace)) is waits


@pytest.mark.parametrize(
    ("name", "kernel_ends", "handed_over", "waits"),
    [
        ("cudaFree", 15, 5, True),
        ("cuMemFree", 15, 5, True),
        ("cudaFree", 9, 5, False),  # the device was idle
        ("cudaFree", 25, 5, False),  # the device kept working
        ("cudaFree", 15, 11, False),  # submitted by another thread after the free began
        ("cudaFreeAsync", 15, 5, False),
    ],
)
def test_a_free_waits_for_earlier_work(name: str, kernel_ends: int, handed_over: int, waits: bool) -> None:
    calls = [launch(handed_over, handed_over + 1, 1), Call(name, 10, 20, 2, 1)]
    trace = Trace(calls=calls, kernels=[kernel(handed_over + 1, kernel_ends, 1)])
    assert [call.name for call in waiting_calls(trace)] == ([name] if waits else [])


def test_intervals_are_merged() -> None:
    assert merged([(5, 9), (0, 3), (3, 4), (8, 12), (20, 20)]) == [(0, 4), (5, 12)]
    assert union([kernel(-5, 2, 1), kernel(200, 300, 2)], WINDOW) == [(0, 2)]
