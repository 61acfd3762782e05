"""The kernels that are measured as primitives, each launched once: for `tools/sanitize.sh`, and for what they leave."""

from __future__ import annotations

import numpy as np
import pytest

from ladder.machine.environment import missing
from tests.common.cuda.test_primitives import KERNELS, SOURCE
from tests.cpu_cuda.kernel_sources import Kernel
from tests.kernels.primitive_launches import launch_of

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_a_primitive_leaves_what_it_is_to_leave(kernel: Kernel) -> None:
    from common.cuda.gpu import Gpu

    gpu = Gpu()
    if kernel.minimum_arch and (reason := missing([f"sm_{kernel.minimum_arch}"])):
        pytest.skip(reason)
    how = launch_of(kernel.name, np.random.default_rng())
    function = gpu.kernel(SOURCE, kernel.name, how.cluster, cooperative=how.cooperative)
    args = {name: gpu.upload(of) if isinstance(of, np.ndarray) else np.int32(of) for name, of in how.args.items()}
    function(how.grid, how.block, *args.values())
    gpu.stream.synchronize()
    for name, value in how.left.items():
        np.testing.assert_array_equal(gpu.download(args[name]), value)
