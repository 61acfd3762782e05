"""Kernels for dependent launches wait for the kernel before them; test_kernels_on_cpu.py launches each of them so."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from common.cuda.compile import compile_cubin
from common.cuda.dependent_launch import MACROS, waits
from tests.cpu_cuda.kernel_sources import KERNELS_FOLDER, Kernel, copy_changed, cuda_files, kernels_in
from tests.cpu_cuda.shim import KernelFault, Shim, Toolchain, requires_compiler
from tests.kernels.cases import all_cases
from tests.nvrtc import requires_nvrtc
from tests.seeds import SEED

SOURCES = [source for source in cuda_files(KERNELS_FOLDER) if waits(source)]
KERNELS = [kernel for kernel in kernels_in(KERNELS_FOLDER) if kernel.source in SOURCES]


def test_the_kernels_of_a_step_are_among_them() -> None:
    assert {"tile_product_f32", "softmax_xent", "bias_update"} <= {kernel.name for kernel in KERNELS}


@requires_compiler
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_one_that_forgets_to_wait_is_caught(kernel: Kernel, tmp_path: Path, toolchain: Toolchain) -> None:
    forgetful = copy_changed(kernel.source, tmp_path, lambda text: text.replace("griddepcontrol_wait();", ""))
    broken = Shim([forgetful], toolchain)
    case = next(iter(all_cases(kernel.name, np.random.default_rng(SEED))))
    with pytest.raises(KernelFault, match="before it waited for the kernel before"):
        broken.launch(
            case.kernel,
            case.grid,
            case.block,
            *case.copy_args().values(),
            dependent=True,
            macros=case.macros,
            **case.how,
        )


@requires_nvrtc
@pytest.mark.parametrize(("arch", "is_there"), [(80, False), (89, False), (90, True)])
def test_the_wait_is_compiled_in_from_sm_90_on(arch: int, is_there: bool) -> None:
    source = KERNELS_FOLDER / "plain/softmax.cu"
    codes = {compile_cubin(source, f"sm_{arch}", macros).code for macros in ((), MACROS)}
    assert len(codes) == 1 + is_there
