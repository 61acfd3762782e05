"""The last layer by clusters of blocks, also of more inputs than a CPU has the patience for."""

from __future__ import annotations

import numpy as np
import pytest

from ladder.machine.environment import missing
from stages.streamed.last_layer_head import BLOCKS
from tests.cpu_cuda.kernel_sources import KERNELS_FOLDER, kernels_in
from tests.gpu.conftest import sanitizer
from tests.gpu.test_kernels import launched
from tests.kernels.cases import last_layers

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(missing(["sm_90"]) is not None, reason=str(missing(["sm_90"])))]

# Blocks with as many inputs each, with one less in the last, and with none; rows of several passes.
SIZES = [(32, 128, 10), (33, 72, 7), (5, 12, 3)]
LARGE = [] if sanitizer() else [(32, 4096, 10), (128, 4096, 10), (32, 8192, 10), (9, 16384, 2)]


@pytest.mark.parametrize("cluster", [2, BLOCKS])
def test_a_cluster_does_what_one_block_does(cluster: int) -> None:
    from common.cuda.gpu import Gpu

    gpu, random = Gpu(), np.random.default_rng()
    (kernel,) = (kernel for kernel in kernels_in(KERNELS_FOLDER) if kernel.name == "last_layer")
    for case in last_layers(random, SIZES + (LARGE if cluster == BLOCKS else []), cluster):
        function = gpu.kernel(kernel.source, kernel.name, macros=case.macros, **case.how)
        first, second = (launched(gpu, function, kernel, case) for _ in range(2))
        assert case.mismatch(first) == ""
        for name, value in first.items():
            assert np.asarray(value).tobytes() == np.asarray(second[name]).tobytes(), f"{case}: {name} varies"
