"""Every hand-written kernel on the GPU, against its NumPy double."""

from __future__ import annotations

import secrets
from typing import Any

import numpy as np
import pytest

from ladder.machine.environment import missing
from tests.cpu_cuda.kernel_sources import KERNELS_FOLDER, Kernel, kernels_in
from tests.gpu.conftest import sanitizer
from tests.kernels.cases import Case, gpu_cases

pytestmark = pytest.mark.gpu

BY_WARPGROUPS = ("streaming_epoch", "stationary_epoch")
BY_LANES = ("persistent_cluster", "cluster_ahead", "ring_back", "ring_forward", *BY_WARPGROUPS)
FOR_TOOLS = {(name, "racecheck"): (("LANES_ARRIVE", "32"),) for name in BY_LANES}  # see epoch.cuh
SCALARS: dict[str, Any] = {"int": np.int32, "float": np.float32, "double": np.float64}


@pytest.mark.parametrize("kernel", kernels_in(KERNELS_FOLDER), ids=lambda kernel: kernel.name)
def test_kernel_does_what_its_double_does(kernel: Kernel) -> None:
    from common.cuda.gpu import Gpu

    gpu = Gpu()
    if kernel.minimum_arch and (reason := missing([f"sm_{kernel.minimum_arch}"])):
        pytest.skip(reason)
    seed = secrets.randbits(32)
    for case in gpu_cases(kernel.name, np.random.default_rng(seed)):
        if case.cluster is not None and not gpu.has_clusters:
            continue
        if (("BY_WARPGROUPS", "1") in case.macros or kernel.name in BY_WARPGROUPS) and gpu.capability != 90:
            continue
        macros = case.macros + FOR_TOOLS.get((kernel.name, sanitizer()), ())
        function = gpu.kernel(kernel.source, kernel.name, macros=macros, **case.how)
        first = launched(gpu, function, kernel, case)
        assert case.mismatch(first) == "", f"seed {seed}"
        if kernel.claims_repeatable and not sanitizer():
            second = launched(gpu, function, kernel, case)
            for name, value in first.items():
                assert np.asarray(value).tobytes() == np.asarray(second[name]).tobytes(), f"{case}: {name} varies"


def launched(gpu: Any, function: Any, kernel: Kernel, case: Case) -> dict[str, Any]:
    """The arguments as a launch leaves them."""
    args: list[Any] = []
    for parameter in kernel.parameters:
        value = case.args[parameter.name]
        args.append(gpu.upload(value) if isinstance(value, np.ndarray) else SCALARS[parameter.type](value))
    function(case.grid, case.block, *args)
    return {
        parameter.name: gpu.download(arg) if parameter.is_tensor else arg
        for parameter, arg in zip(kernel.parameters, args, strict=True)
    }
