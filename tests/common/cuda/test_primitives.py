"""The kernels of the primitives compile wherever they are measured, and say what a kernel of ours must."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from common.cuda.compile import compile_cubin
from tests.cpu_cuda.kernel_sources import Kernel, parse
from tests.kernels.primitive_launches import launch_of
from tests.kernels.test_kernels_compile import ARCHITECTURES
from tests.nvrtc import requires_nvrtc

FOLDER = Path(__file__).parents[3] / "common" / "cuda"
SOURCE = FOLDER / "primitives.cu"
KERNELS = parse(SOURCE)


@requires_nvrtc
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_all_kernels_are_there_on_every_architecture_and_stay_in_registers(arch: int) -> None:
    resources = compile_cubin(SOURCE, f"sm_{arch}").resources
    assert sorted(resources) == sorted(kernel.name for kernel in KERNELS)
    for name, used in resources.items():
        assert (used.spill_stores, used.spill_loads, used.stack_frame) == (0, 0, 0), name
        assert used.registers <= 64, name  # 1,024 threads of read_repeatedly fit in a multiprocessor


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_a_comment_block_stands_above_each_kernel(kernel: Kernel) -> None:
    text = "\n".join(kernel.comment)
    assert text.startswith(f"{kernel.name}: ")
    for title in ("Launch", "Needs", "Order"):
        assert kernel.section(title), f"the comment of {kernel.name} says nothing about {title}"
    for parameter in kernel.parameters:
        assert re.search(rf"\b{parameter.name}\b", text), f"{parameter.name}: is not explained"


def test_no_kernel_escapes_the_parser() -> None:
    assert SOURCE.read_text().count("__global__") == len(KERNELS) > 0


def test_instructions_of_newer_architectures_are_guarded() -> None:
    assert {kernel.name for kernel in KERNELS if kernel.minimum_arch == 90} == {
        "pass_on_early", "cluster_barrier", "cluster_hop",
    }  # fmt: skip


def test_what_kernel_and_launch_code_share_is_the_same() -> None:
    """Read as text, since the module imports CuPy."""
    in_kernel = re.search(r"constexpr int READS_AT_ONCE = (\d+);", SOURCE.read_text())
    in_launch = re.search(r"^READS_AT_ONCE = (\d+)", (FOLDER / "primitives.py").read_text(), re.MULTILINE)
    assert in_kernel is not None
    assert in_launch is not None
    assert in_kernel[1] == in_launch[1]


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_every_primitive_is_launched_by_a_gpu_test_with_what_it_takes(kernel: Kernel) -> None:
    given = launch_of(kernel.name, np.random.default_rng(0))
    assert list(given.args) == [parameter.name for parameter in kernel.parameters]
    assert {name for name in given.args if isinstance(given.args[name], np.ndarray)} == {
        parameter.name for parameter in kernel.parameters if parameter.is_tensor
    }
    assert set(given.left) == {parameter.name for parameter in kernel.parameters if parameter.is_written}
