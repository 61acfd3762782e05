"""A kernel's cases, executed on the CPU by the shim."""

from __future__ import annotations

from functools import cache

import numpy as np

from common.cuda.compile import Macros
from tests.cpu_cuda.shim import LIMIT_S, KernelFault, Shim
from tests.kernels.cases import Args, Case, all_cases
from tests.seeds import SEED


@cache
def cases_of(kernel: str) -> list[Case]:
    """Those that a CPU executes, with the same numbers in every run; `LADDER_TEST_SEED` draws others."""
    return [case for case in all_cases(kernel, np.random.default_rng(SEED)) if not case.on_gpu_alone]


def launch(shim: Shim, case: Case, order: int, *, dependent: bool = False, limit_s: int = 0, more: Macros = ()) -> Args:
    """The arguments as a launch leaves them, compiled with more macros. Raises KernelFault after `limit_s` seconds."""
    args = case.copy_args()
    shim.launch(
        case.kernel,
        case.grid,
        case.block,
        *args.values(),
        seed=order,
        dependent=dependent,
        macros=(*case.macros, *more),
        limit_s=limit_s or (LIMIT_S if case.cluster is None else 5 * LIMIT_S),  # for the threads of several clusters
        **case.how,
    )
    return args


def fault(shim: Shim, case: Case, *, limit_s: int = 0, more: Macros = ()) -> str:
    """What is wrong after a launch; empty if nothing is."""
    try:
        return case.mismatch(launch(shim, case, 1, limit_s=limit_s, more=more))
    except KernelFault as found:
        return str(found)
