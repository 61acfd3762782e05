"""Measures the CPU's limits (`python -m ladder.machine.cpu_limits OUT.json`) and computes the floors that they set.

Measuring has its own process: its threads and memory leave nothing to a stage.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from common.cost import HEADROOM, operations
from common.cpu_cost import CpuDesign, CpuRates, cpu_floor
from common.problem import Problem
from ladder.machine.environment import missing
from ladder.machine.limits import Primitive, main, measure_limits
from ladder.records.limits_record import Cpu, CpuLimits, DesignFloor, Limit, LimitsRecord, StepBounds
from ladder.records.profile import Profile
from stages.engine.stage import Stage

if TYPE_CHECKING:
    from common.cpu.primitives import CpuPrimitives

CLOCK_GHZ = 6.5  # of the fastest core on sale
# Operations a core and cycle, by what /proc/cpuinfo says that it can do; a multiplication with an addition is two.
# Twice those in float32, since bytes multiply faster, and a float32 takes at least two of them.
OPERATIONS = {"amx_tile": 4096, "avx512f": 128, "asimd": 128, "avx2": 64}
ANY_CORE = 4096
EXCHANGE_US = 0.1  # between cores that share a step
BLAS = "blas_product"  # the kernel that calls BLAS


PRIMITIVES = (  # `{}` in a title is the number of cores
    Primitive("call", "call of compiled code from Python", "us", lambda cpu: cpu.call()),
    Primitive("blas_call", "BLAS call from compiled code, 1 x 1 x 1", "us", lambda cpu: cpu.blas_call()),
    Primitive("barrier", "barrier of {} threads", "us", lambda cpu: cpu.barrier(), least_cores=2),
    Primitive("l1_read", "reads from L1, one core", "GB/s", lambda cpu: cpu.read("l1")),
    Primitive("l2_read", "reads from L2, one core", "GB/s", lambda cpu: cpu.read("l2")),
    Primitive("l3_read", "reads from L3, one core", "GB/s", lambda cpu: cpu.read("l3")),
    Primitive("memory_read", "reads from memory, one core", "GB/s", lambda cpu: cpu.read("memory")),
    Primitive("memory_write", "writes to memory, one core", "GB/s", lambda cpu: cpu.write_memory()),
    Primitive(
        "memory_read_all", "reads from memory, {} cores", "GB/s", lambda cpu: cpu.read_memory_with_all(), least_cores=2
    ),
    Primitive("multiply_add", "float32 multiply-adds, one core", "GFLOP/s", lambda cpu: cpu.multiply_add()),
    Primitive(
        "multiply_add_all", "float32 multiply-adds, {} cores", "GFLOP/s", lambda cpu: cpu.multiply_add(cpu.cores),
        least_cores=2,
    ),
    Primitive("blas_product", "BLAS product, float32, one core", "GFLOP/s", lambda cpu: cpu.product()),
)  # fmt: skip
"""In the order of the table."""


def _this_cpu() -> CpuPrimitives:
    """The primitives of the usable cores; imports Numba, which takes long."""
    from common.cpu.primitives import CpuPrimitives

    return CpuPrimitives()


def measure_cpu_limits(open_cpu: Callable[[], CpuPrimitives] = _this_cpu) -> CpuLimits:
    """Measure every primitive on the usable cores, in some seconds."""
    begin = time.perf_counter()
    cpu = open_cpu()
    limits, skipped = [], {}
    for primitive in PRIMITIVES:
        title = primitive.title.format(cpu.cores)
        if cpu.cores < primitive.least_cores:
            skipped[title] = "this process may use one core only"
            continue
        limit = primitive.limit(cpu, title)
        if isinstance(limit, Limit):
            limits.append(limit)
        else:
            skipped[title] = limit
    return CpuLimits(Cpu(cpu.cores, *cpu.caches), limits, skipped, time.perf_counter() - begin)


def rates_of(record: CpuLimits) -> CpuRates | None:
    """The best sample of each primitive, in the cost model's units; None if one is missing."""
    best = {limit.name: limit.best for limit in record.limits}
    try:
        multiplied = max(best["multiply_add"], best["blas_product"])
        return CpuRates(
            call_us=best["call"],
            blas_us=best["blas_call"],
            barrier_us=best.get("barrier", 0.0),
            flops=multiplied * 1e3,
            all_flops=max(best.get("multiply_add_all", 0.0), record.cpu.cores * multiplied) * 1e3,
            reads={
                "L1": best["l1_read"] * 1e3,
                "L2": best["l2_read"] * 1e3,
                "L3": best["l3_read"] * 1e3,
                "memory": best["memory_read"] * 1e3,
            },
            all_memory_reads=best.get("memory_read_all", best["memory_read"]) * 1e3,
            sizes={"L1": record.cpu.l1_bytes, "L2": record.cpu.l2_bytes, "L3": record.cpu.l3_bytes},
        )
    except KeyError:
        return None


def design_of(stage: Stage, profile: Profile, steps: int, detail: str) -> CpuDesign | None:
    """A rung's design on the CPU, counted by its profile of epochs of `steps` steps; None without a recipe.

    `detail` tells its threads, such as `CPU, 2 threads`.
    """
    if stage.recipe is None:
        return None
    match = re.search(r"(\d+) threads", detail)
    threads = int(match[1]) if match else 1
    seen = len({span.thread for span in profile.timeline}) or 1
    return CpuDesign(
        calls=profile.launches_per_step,
        barriers=profile.syncs_per_epoch / steps,
        blas_calls=sum(kernel.per_step for kernel in profile.kernels if kernel.name == BLAS) / seen,
        threads=threads,
        pixel_bytes=stage.recipe.data.pixel_bytes,
        weights=stage.recipe.weights,
    )


def floor_of(
    record: CpuLimits, stage: Stage, problem: Problem, steps: int, profile: Profile | None, detail: str
) -> DesignFloor | None:
    """The floor of a rung's design on that CPU; None without a recipe, a profile, or one of the limits."""
    rates = rates_of(record)
    design = design_of(stage, profile, steps, detail) if profile is not None else None
    if rates is None or design is None:
        return None
    floor = cpu_floor(problem, steps, design, rates)
    threads = f"{design.threads} thread{'s' if design.threads > 1 else ''}"
    return DesignFloor(
        launching_us=floor.calling_us,
        kernels_us=floor.kernels_us,
        waiting_us=floor.barriers_us,
        flops=floor.flops,
        bytes=floor.bytes,
        arithmetic=f"float32, {threads}",
        overlaps=False,
        bound_by=floor.bound_by,
    )


def bounds_of(cheat_limit_us: float, floor: DesignFloor | None, step_us: float | None) -> StepBounds:
    """The bounds of a rung on the CPU; a floor above its measured step is no floor, and the reason takes its place.

    The limits were then measured on a slower machine than the rung: a barrier of two threads takes 0.1 or 2.4 us, by
    the cores that a virtual machine has just been given.
    """
    if floor is None or step_us is None or floor.total_us <= step_us:
        return StepBounds(cheat_limit_us, floor)
    why = f"the limits make {floor.total_us:.3g} us of a step that took {step_us:.3g}: the CPU was slower meanwhile"
    return StepBounds(cheat_limit_us, None, why)


def measure_limits_here() -> LimitsRecord | CpuLimits:
    """Measure them, in a few seconds; raises UsageError if what measures them is not installed."""
    return measure_cpu_limits() if missing(("cuda",)) else measure_limits()


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


if __name__ == "__main__":
    main(measure_cpu_limits, Path(sys.argv[1]))
