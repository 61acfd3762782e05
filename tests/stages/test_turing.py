"""Rungs that name no `sm_` run on Turing (sm_75), such as a T4: their kernels ask for no more.

`tests/kernels` compiles each of these files for sm_75, and executes their plain kernels on the CPU.
"""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path

import pytest

from common.cuda.compile import compile_cubin
from stages.engine.stage import Stage
from stages.registry import load_all
from tests.cpu_cuda.kernel_sources import KERNELS_FOLDER
from tests.kernels.test_kernels_compile import supported
from tests.nvrtc import requires_nvrtc

TURING = 75
RUNGS = [entry.stage for entry in load_all().values() if entry.stage.recipe is not None and "cuda" in entry.stage.needs]
ON_TURING = [stage for stage in RUNGS if not any(need.startswith("sm_") for need in stage.needs)]


def sources_of(stage: Stage) -> set[Path]:
    """The kernels' files that the modules of its parts name, and those of their base classes."""
    assert stage.recipe is not None
    names = {base.__module__ for part in stage.recipe.parts().values() for base in part.__mro__}
    texts = [inspect.getsource(sys.modules[name]) for name in names if name.startswith("stages.")]
    return {KERNELS_FOLDER / name for text in texts for name in re.findall(r'"(\w+/\w+\.cu)"', text)}


def test_a_t4_has_the_ladder_up_to_one_kernel_an_epoch() -> None:
    names = [stage.name for stage in ON_TURING]
    classic = ["naive", "async", "cublas", "sparse-metrics", "cudnn-softmax", "cuda-graph"]
    assert [name for name in names if name in {*classic, "fused-bias", "persistent-grid"}] == [
        *classic, "fused-bias", "persistent-grid",
    ]  # fmt: skip
    assert not {"tf32", "bf16", "fp16", "streamed", "last-layer", "persistent-cluster"} & {*names}


@pytest.mark.parametrize("stage", ON_TURING, ids=lambda stage: stage.name)
def test_no_kernel_of_it_needs_more(stage: Stage) -> None:
    assert (sources := sources_of(stage))
    assert {source.name for source in sources if TURING not in supported(source)} == set()


@requires_nvrtc
def test_tensor_cores_for_bfloat16_are_beyond_it() -> None:
    with pytest.raises(Exception, match="error"):
        compile_cubin(KERNELS_FOLDER / "tiles" / "tile_bf16.cu", f"sm_{TURING}")
