"""The time of a step that no program can beat on a CPU."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from common.cost import HEADROOM, operations
from common.problem import Problem

CLOCK_GHZ = 6.5  # of the fastest core on sale
# Operations a core and cycle, by what /proc/cpuinfo says that it can do; a multiplication with an addition is two.
# Twice those in float32, since bytes multiply faster, and a float32 takes at least two of them.
OPERATIONS = {"amx_tile": 4096, "avx512f": 128, "asimd": 128, "avx2": 64}
ANY_CORE = 4096
EXCHANGE_US = 0.1  # between cores that share a step


def cpu_cheat_limit(problem: Problem, cores: int, density: float) -> float:
    """Time in us that no honest step on `cores` cores can beat.

    `density` is the share of pixels that are not 0: a program may leave the others out, and all that a ReLU made 0. The
    products with pixels that remain are the forward one and, without a ReLU, the gradient's. One core needs no exchange
    with others but has only its share of the rate: if that is faster, it is the limit. Divided by `HEADROOM`.
    """
    counted = ("forward",) if problem.hidden else ("forward", "weight_gradient")
    flops = density * sum(op.flops for op in operations(problem) if op.layer == 0 and op.name in counted)
    one_core = flops / (_operations_a_cycle() * CLOCK_GHZ * 1e3)
    return min(one_core, one_core / cores + EXCHANGE_US) / HEADROOM


@cache
def _operations_a_cycle() -> int:
    try:
        flags = set(Path("/proc/cpuinfo").read_text().split())
    except OSError:
        return ANY_CORE
    return next((operations for flag, operations in OPERATIONS.items() if flag in flags), ANY_CORE)
