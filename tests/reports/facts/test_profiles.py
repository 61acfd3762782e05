from __future__ import annotations

import pytest
from msgspec.structs import replace

from ladder.records.profile import CopyUse, Profile, Split
from ladder.records.run import StageResult
from reports.facts.profiles import agree, agreement, grid, host_lines, kernel_name, kernel_names, launch_us, seen_by
from tests.reports import sample
from tests.reports.profiles import CUBLAS, kernel, own_kernels, profile

SPLIT = Split(30.0, 0.0, 5.0, 10.0, 5.0)


def stage(name: str) -> StageResult:
    return next(stage for stage in sample.results().stages if stage.name == name)


@pytest.mark.parametrize(
    ("name", "limit", "short"),
    [
        ("softmax", 36, "softmax"),
        (CUBLAS, 36, "sm80_xmma_gemm_f32f32_f32f32_f32…"),
        (CUBLAS, 24, "sm80_xmma_gemm_f32f32…"),
        ("a" * 30, 10, "a" * 9 + "…"),
        ("splitKreduce_kernel", 19, "splitKreduce_kernel"),
    ],
)
def test_a_long_name_ends_at_a_word_where_it_can(name: str, limit: int, short: str) -> None:
    assert kernel_name(name, limit) == short
    assert len(short) <= limit


GENERATED = ["triton_tem_fused_addmm_t_0", "triton_tem_fused_mm_t_7", "triton_tem_fused_mm_sub_t_4", "triton_poi_2"]
GENERATED += [f"triton_per_fused__log_softmax_arange_eq_expand_nll_loss_sub_view_where_{number}" for number in (2, 15)]
GENERATED += [CUBLAS, CUBLAS.replace("execute_kernel", "execute_split_k_kernel")]
GENERATED += ["gemm_" + "x" * length for length in (40, 39)]


@pytest.mark.parametrize("limit", [18, 24, 36])
def test_no_two_kernels_of_a_table_have_one_name(limit: int) -> None:
    short = kernel_names(GENERATED, limit)
    assert list(short) == GENERATED
    assert len(set(short.values())) == len(GENERATED)
    assert max(map(len, short.values())) <= limit
    assert short["triton_poi_2"] == "triton_poi_2"


def test_kernels_that_begin_alike_show_their_differences() -> None:
    assert list(kernel_names(GENERATED[:3], 18).values()) == [
        "triton_t…addmm_t_0", "triton_tem…mm_t_7", "triton…mm_sub_t_4",
    ]  # fmt: skip


def test_clusters_are_shown() -> None:
    one = kernel("k", "gemm", 1.0, blocks=1024)
    assert grid(one) == "1,024 x 256"
    assert grid(replace(one, cluster=8)) == "1,024 x 256, clusters of 8"


def test_the_host_s_work_is_listed() -> None:
    seen = profile(SPLIT, own_kernels(), reads=True)
    copies = [*seen.copies, CopyUse("fill", 1.0, 16.0, 0.1)]
    lines = dict(host_lines(replace(seen, copies=copies)))
    assert lines == {
        "Launches": "8 per step, 24.0 us of host time",
        "Kernels": "8 per step",
        "Synchronisations": "468 per epoch besides the last one, 12.0 us of host time per step",
        "Copies, device to host": "468 per epoch, 7.5 kB in all",
        "Fills": "1 per epoch, 16 B in all",
        "Allocations": "cudaMallocAsync 468 per epoch",
        "GPU busy": "54.5% of the time under the tool",
    }


def test_graph_launches_and_absent_calls_are_reported() -> None:
    lines = dict(host_lines(profile(SPLIT, own_kernels(), as_graph=True)))
    assert lines["Graph launches"] == "1 per epoch"
    assert lines["Synchronisations"] == "only the one that ends an epoch"
    assert lines["Allocations"] == "none"


def test_only_launches_count_as_launching() -> None:
    seen = profile(SPLIT, own_kernels())
    calls = [*seen.calls, replace(seen.calls[0], name="cudaMemcpyAsync")]
    assert launch_us(replace(seen, calls=calls)) == launch_us(seen) == 24.0


@pytest.mark.parametrize(
    ("slowdown", "text"),
    [(0.12, "CUPTI, under which a step takes 12% longer"), (-0.01, "CUPTI, under which a step takes no longer")],
)
def test_the_tool_s_cost_is_shown(slowdown: float, text: str) -> None:
    assert seen_by(profile(SPLIT, own_kernels(), slowdown=slowdown)) == text


def test_a_profile_names_its_number_of_processes() -> None:
    seen = replace(profile(SPLIT, own_kernels()), processes=2)
    assert seen_by(seen) == "CUPTI in 2 processes, under which a step takes 10% longer"


def busy(us: float, kernels: float = 8.0) -> Profile:
    return profile(Split(us, 0, 0, 50.0, 0), own_kernels(), tool="nsys", kernels_per_step=kernels)


@pytest.mark.parametrize(
    ("other", "same"), [(busy(30.0), True), (busy(31.5), True), (busy(31.7), False), (busy(28.4), False)]
)
def test_tools_agree_within_five_percent_of_the_busy_time(other: Profile, same: bool) -> None:
    one = profile(Split(30.0, 0, 0, 50.0, 0), own_kernels())
    assert agree(one, other) == agree(other, one) == same


def test_one_kernel_more_in_a_whole_epoch_is_a_disagreement() -> None:
    assert not agree(busy(30.0), busy(30.0, kernels=8 + 1 / 468))


def test_the_line_on_the_tools() -> None:
    assert agreement(stage("naive")) == "nsys and CUPTI agree: kernels per step 8 / 8, busy 38.5 / 39.0 us (1.3%)"
    assert agreement(stage("cublas")).startswith("nsys and CUPTI disagree: kernels per step 8 / 8.5, busy 26.0 / 24.0")
    assert agreement(stage("async")) == agreement(stage("torch-amp")) == ""
