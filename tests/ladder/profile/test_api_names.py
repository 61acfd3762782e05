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


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("cudaGraphLaunch_v10000", "cudaGraphLaunch"),
        ("cudaLaunchKernel_ptsz_v7000", "cudaLaunchKernel"),
        ("cuMemcpyDtoH_v2", "cuMemcpyDtoH"),
        ("cuLaunchKernelEx", "cuLaunchKernelEx"),
    ],
)
def test_a_calls_name_has_no_version(name: str, plain: str) -> None:
    assert call_name(name) == plain


def test_every_kernel_of_ours_declares_its_kind() -> None:
    on_gpu = {kernel.name for kernel in kernels_in(KERNELS_FOLDER)}
    on_cpu = {
        name for file in CPU_KERNELS.glob("*.py") for name in re.findall(r"@kernel.*\ndef (\w+)", file.read_text())
    }
    in_python = set(re.findall(r"@triton.jit\ndef (triton_\w+)", TRITON_KERNELS.read_text()))
    in_python |= set(re.findall(r"@cute.kernel\ndef (\w+)", TRITON_KERNELS.with_name("cute_kernels.py").read_text()))
    assert on_cpu
    assert len(in_python) == 4
    assert set(declared()) == on_gpu | on_cpu | in_python
    assert (kind_of("tile_product_split"), kind_of("cluster_mlp"), kind_of("spread")) == ("gemm", "fused", "gemm")


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("cutlass_80_simt_sgemm_128x32_8x5_nn_align1", "gemm"),
        ("splitKreduce_kernel", "gemm"),
        ("gemv2T_kernel_val", "gemm"),
        ("nvjet_sm90_tst_8x64_64x16_4x1_v_bz_bias_TNN", "gemm"),
        ("triton_mm", "gemm"),
        ("triton_tem_fused_mm_3", "gemm"),
        ("triton_poi_fused_add_relu_0", "fused"),
        ("triton_per_fused__log_softmax_1", "fused"),
        ("input_reduce_fusion_3", "fused"),
        ("gemm_fusion_dot_8", "gemm"),
        ("softmax_fw_small_kernel", "softmax"),
        ("nll_loss_forward_reduce_cuda_kernel_2d", "softmax"),
        ("cunn_SoftMaxForward", "softmax"),
        ("reduce_kernel", "layer"),
        ("multi_tensor_apply_kernel", "update"),
        ("loop_transpose", "other"),
    ],
)
def test_a_library_s_kernel_is_known_by_its_name(name: str, kind: str) -> None:
    assert kind_of(name) == kind


@pytest.mark.parametrize(
    ("name", "does", "takes_memory"),
    [
        ("cudaMalloc", True, True),
        ("cudaMallocAsync", True, True),
        ("cuMemAlloc", True, True),
        ("cudaHostAlloc", True, True),
        ("cudaFree", True, True),
        ("cuMemFreeAsync", True, True),
        ("cudaLaunchKernelExC", True, False),
        ("cudaGraphLaunch", True, False),
        ("cuMemcpyDtoHAsync", True, False),
        ("cudaMemsetAsync", True, False),
        ("cudaEventSynchronize", True, False),
        ("cudaGetDevice", False, False),
        ("cudaStreamIsCapturing", False, False),
        ("cuKernelGetName", False, False),
    ],
)
def test_actions_are_distinguished_from_queries(name: str, does: bool, takes_memory: bool) -> None:
    assert (is_action(name), allocates(name)) == (does, takes_memory)
