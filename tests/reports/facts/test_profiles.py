from __future__ import annotations

import pytest

from ladder.records.profile import Profile, Split
from ladder.records.run import StageResult
from reports.facts.profiles import agree, kernel_names
from tests.reports import sample
from tests.reports.profiles import CUBLAS, own_kernels, profile


def stage(name: str) -> StageResult:
    return next(stage for stage in sample.results().stages if stage.name == name)


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


def busy(us: float, kernels: float = 8.0) -> Profile:
    return profile(Split(us, 0, 0, 50.0, 0), own_kernels(), tool="nsys", kernels_per_step=kernels)


@pytest.mark.parametrize(
    ("other", "same"), [(busy(30.0), True), (busy(31.5), True), (busy(31.7), False), (busy(28.4), False)]
)
def test_tools_agree_within_five_percent_of_the_busy_time(other: Profile, same: bool) -> None:
    one = profile(Split(30.0, 0, 0, 50.0, 0), own_kernels())
    assert agree(one, other) == agree(other, one) == same
