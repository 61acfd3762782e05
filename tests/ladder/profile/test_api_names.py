"""Short names of kernels and calls, and the kinds derived from them."""

from __future__ import annotations

import re

import pytest

from ladder.profile.api_names import allocates, call_name, is_action, short_name
from ladder.profile.kernel_kinds import declared, kind_of
from tests.cpu_cuda.kernel_sources import KERNELS_FOLDER, kernels_in

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


def test_a_calls_name_has_no_version() -> None:
    for name in ("cudaGraphLaunch_v10000", "cudaLaunchKernel_ptsz_v7000", "cuMemcpyDtoH_v2", "cuLaunchKernelEx"):
        assert call_name(name) == name.partition("_")[0]


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


@pytest.mark.parametrize(
    ("names", "does", "takes_memory"),
    [
        ("cudaMalloc cudaMallocAsync cuMemAlloc cudaHostAlloc cudaFree cuMemFreeAsync", True, True),
        ("cudaLaunchKernelExC cudaGraphLaunch cuMemcpyDtoHAsync cudaMemsetAsync cudaEventSynchronize", True, False),
        ("cudaGetDevice cudaStreamIsCapturing cuKernelGetName", False, False),
    ],
)
def test_actions_are_distinguished_from_queries(names: str, does: bool, takes_memory: bool) -> None:
    for name in names.split():
        assert (is_action(name), allocates(name)) == (does, takes_memory), name
