"""The limits of the GPU at hand, and the floors that they set; `python -m ladder.machine.limits OUT.json` measures.

In a process of its own, so that a primitive which the GPU refuses leaves nothing behind for a stage to trip over.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import msgspec

from common import cost
from common.cost import Design, Exchanges, Precision, Rates
from common.errors import UsageError
from common.problem import Problem
from common.process_group import die_with_parent
from ladder.machine.environment import missing
from ladder.machine.gpu_monitor import GpuMonitor
from ladder.records.limits import SHARED, Chip, DesignFloor, Floor, Limit, LimitsRecord, Unit
from ladder.records.profile import Profile
from ladder.records.run import Spread

if TYPE_CHECKING:
    from common.cuda.primitives import Primitives


@dataclass(frozen=True)
class Primitive:
    """One row: what it is, and how it is measured."""

    name: str
    title: str
    unit: Unit
    measure: Callable[[Primitives], list[float]]
    needs: tuple[str, ...] = ()  # in the words of `ladder.machine.environment.missing`


_HOPPER = ("sm_90",)
_BLAS = ("cublas",)
_AMPERE_BLAS = ("cublas", "sm_80")
PRIMITIVES = (
    Primitive("launch", "launch from Python, back to back", "us", lambda gpu: gpu.launch()),
    Primitive("launch_and_wait", "launch and wait for the stream", "us", lambda gpu: gpu.launch_and_wait()),
    Primitive("launch_and_read", "launch, copy 4 bytes to the host, wait", "us", lambda gpu: gpu.launch_and_read()),
    Primitive("graph_node", "graph node, 1 block", "us", lambda gpu: gpu.graph_node(1)),
    Primitive("graph_node_full", "graph node, a block per SM", "us", lambda gpu: gpu.graph_node(gpu.multiprocessors)),
    Primitive(
        "graph_node_dependent",
        "graph node, programmatic dependent launch",
        "us",
        lambda gpu: gpu.dependent_graph_node(),
        _HOPPER,
    ),
    Primitive("block_barrier", "__syncthreads, 256 threads", "us", lambda gpu: gpu.block_barrier()),
    Primitive("grid_barrier", "grid barrier, a block per SM", "us", lambda gpu: gpu.grid_barrier()),
    Primitive("cluster_barrier_2", "cluster barrier, 2 blocks", "us", lambda gpu: gpu.cluster_barrier(2), _HOPPER),
    Primitive("cluster_barrier_16", "cluster barrier, 16 blocks", "us", lambda gpu: gpu.cluster_barrier(16), _HOPPER),
    Primitive("cluster_hop_2", "cluster hop of 256 bytes, 2 blocks", "us", lambda gpu: gpu.cluster_hop(2), _HOPPER),
    Primitive("cluster_hop_16", "cluster hop of 256 bytes, 16 blocks", "us", lambda gpu: gpu.cluster_hop(16), _HOPPER),
    Primitive("l2_load", "load from L2, one after the other", "us", lambda gpu: gpu.load_latency()),
    Primitive("memory_copy", "memory copy, read and written", "GB/s", lambda gpu: gpu.memory_copy()),
    Primitive("l2_read", "reads from L2", "GB/s", lambda gpu: gpu.l2_read()),
    Primitive("gemm_float32", "matrix product, float32", "TFLOP/s", lambda gpu: gpu.product("float32"), _BLAS),
    Primitive("gemm_tf32", "matrix product, tf32", "TFLOP/s", lambda gpu: gpu.product("tf32"), _AMPERE_BLAS),
    Primitive("gemm_bfloat16", "matrix product, bf16", "TFLOP/s", lambda gpu: gpu.product("bfloat16"), _AMPERE_BLAS),
    Primitive("gemm_float16", "matrix product, fp16", "TFLOP/s", lambda gpu: gpu.product("float16"), _BLAS),
    # The last one, since whatever is measured after it in this process has such nodes.
    Primitive(
        "graph_node_after_two_streams",
        "graph node, a block per SM, once two streams were used",
        "us",
        lambda gpu: gpu.graph_node_after_two_streams(),
    ),
)  # fmt: skip
"""In the order of the table."""

ATTEMPTS = 2  # of a primitive, where another process was seen beside it
HOPS = ("cluster_hop_2", "cluster_hop_16")
EXCHANGES = (*HOPS, "grid_barrier")
"""Whatever brings data from one multiprocessor to all others."""


def _first_gpu() -> Primitives:
    """The GPU, imported only where there is one."""
    from common.cuda.primitives import Primitives

    return Primitives()


def measure_limits(
    open_gpu: Callable[[], Primitives] = _first_gpu, open_monitor: Callable[[], GpuMonitor] = GpuMonitor
) -> LimitsRecord:
    """Measure every primitive on the first visible GPU, in a few seconds; UsageError where there is none.

    One that the GPU does not support, that fails, or that another process disturbs is left out with the reason.
    """
    if reason := missing(("cuda",)):
        raise UsageError(f"limits: {reason}; they can only be measured on a machine with an NVIDIA GPU")
    begin = time.perf_counter()
    try:
        gpu = open_gpu()
    except Exception as error:  # whatever CUDA's libraries raise: no memory, a GPU that another process has for itself
        raise UsageError(f"limits: the GPU cannot be used ({error}); free it, or see --doctor") from error
    limits, skipped = [], {}
    with open_monitor() as monitor:
        for primitive in PRIMITIVES:
            measured = _measure(primitive, gpu, monitor)
            if isinstance(measured, Limit):
                limits.append(measured)
            else:
                skipped[primitive.title] = measured
    chip = Chip(gpu.multiprocessors, gpu.l2_bytes, gpu.on_chip_bytes, gpu.block_shared_bytes)
    return LimitsRecord(chip, limits, skipped, time.perf_counter() - begin)


def floors(record: LimitsRecord, problem: Problem, precision: Precision, design: Design | None = None) -> Floor | None:
    """What a step of the problem takes at least on that GPU, and a stage of this design; `common.cost` says how.

    None where a primitive that it takes was not measured.
    """
    rates = rates_of(record)
    if rates is None:
        return None
    return Floor(
        physical_us=cost.physical_floor(problem, precision, rates),
        design=None
        if design is None
        else DesignFloor(
            launching_us=cost.launching_floor(design, rates),
            kernels_us=cost.kernels_floor(problem, design, precision, rates),
            waiting_us=cost.waiting_floor(design, rates),
            exchanging_us=cost.exchanging_floor(design, rates),
        ),
    )


def design_of(profile: Profile, steps: int, exchanges: Exchanges, *, are_dependents: bool) -> Design:
    """What a stage was seen to do in a step, of epochs of so many steps, and what it says of itself.

    That is whether its kernels start early, and what they exchange, which no profile sees.

    A read-back is two calls that wait: the copy, which is through when it returns, and the wait that makes sure of it.
    """
    read_backs = sum(copy.per_epoch for copy in profile.copies if copy.direction == "device to host") / steps
    return Design(
        kernels=profile.kernels_per_step,
        launches=profile.launches_per_step,
        waits=max(profile.syncs_per_epoch / steps - 2 * read_backs, 0.0),
        read_backs=read_backs,
        are_dependents=are_dependents,
        exchanges=exchanges,
    )


def rates_of(record: LimitsRecord) -> Rates | None:
    """The best sample of each primitive in the units of the cost model; None where one is missing or was disturbed."""
    best = {limit.name: limit.best for limit in record.limits}
    flops = {name: best[f"gemm_{name}"] * 1e6 for name in get_args(Precision) if f"gemm_{name}" in best}
    exchanges = [best[name] for name in EXCHANGES if name in best]
    if not flops or not exchanges or SHARED in record.skipped.values():
        return None
    try:
        return Rates(
            launch_us=best["launch"],
            node_us=best["graph_node"],
            dependent_node_us=best.get("graph_node_dependent"),
            wait_us=max(best["launch_and_wait"] - best["launch"], 0.0),
            read_back_us=max(best["launch_and_read"] - best["launch"], 0.0),
            exchange_us=min(exchanges),
            cluster_hop_us=min((best[name] for name in HOPS if name in best), default=None),
            grid_barrier_us=best.get("grid_barrier"),
            memory_bytes=best["memory_copy"] * 1e3,
            l2_bytes=best["l2_read"] * 1e3,
            flops=flops,
            l2_size=record.chip.l2_bytes,
            on_chip_size=record.chip.on_chip_bytes,
            multiprocessors=record.chip.multiprocessors,
        )
    except KeyError:
        return None


def _measure(primitive: Primitive, gpu: Primitives, monitor: GpuMonitor) -> Limit | str:
    """The row, or why there is none."""
    if reason := missing(primitive.needs):
        return reason
    for _ in range(ATTEMPTS):
        measured = _measure_once(primitive, gpu)
        if isinstance(measured, str) or not any(state.other_processes for state in monitor.read()):
            return measured
    # Two processes take turns on a GPU, and a floor from half of its rate would call an honest stage impossible.
    return SHARED


def _measure_once(primitive: Primitive, gpu: Primitives) -> Limit | str:
    try:
        samples = primitive.measure(gpu)
    except Exception as error:  # whatever a library raises becomes the reason
        return f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0]}"
    if not all(0 < sample < math.inf for sample in samples):
        return f"drowned in noise: {min(samples):.3g} to {max(samples):.3g} {primitive.unit}"
    spread = Spread.of(samples)
    return Limit(primitive.name, primitive.title, primitive.unit, spread.median, spread.min, spread.max)


def main(target: Path) -> None:
    """Measure, and leave the record there; a UsageError becomes one line on the standard error and exit code 1."""
    die_with_parent()
    try:
        record = measure_limits()
    except UsageError as error:
        sys.exit(str(error))
    part = target.with_name(f"{target.name}.part")
    part.write_bytes(msgspec.json.encode(record))
    part.replace(target)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
