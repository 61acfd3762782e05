"""Measures the GPU's limits (`python -m ladder.machine.limits OUT.json`) and computes the bounds that they set.

Measuring has its own process, so that a primitive that fails on the GPU leaves no broken CUDA context to a stage.
"""

from __future__ import annotations

import hashlib
import math
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import msgspec

from common import cost
from common.cache import cache_folder
from common.cost import Design, Exchanges, Precision, Rates
from common.cuda import driver
from common.errors import UsageError
from common.files import atomic_write
from common.problem import Problem
from common.process_group import die_with_parent
from common.source_hash import source_hash
from ladder.machine.environment import missing
from ladder.machine.gpu_monitor import GpuMonitor
from ladder.records.limits_record import SHARED, Chip, DesignFloor, Limit, LimitsRecord, StepBounds, Unit
from ladder.records.profile import Profile
from ladder.records.run import Spread
from stages.engine.recipe import Traits
from stages.engine.stage import Stage

if TYPE_CHECKING:
    from common.cuda.primitives import Primitives

ROOT = Path(__file__).parents[2]
MEASURED_BY = (ROOT / "common/cuda/primitives.py", ROOT / "ladder/machine/limits.py")


@dataclass(frozen=True)
class Primitive:
    """One row of the table of limits, and how to measure it."""

    name: str
    title: str
    unit: Unit
    measure: Callable[[Primitives], list[float]]
    needs: tuple[str, ...] = ()  # as `ladder.machine.environment.missing` takes them

    def limit(self, gpu: Primitives) -> Limit | str:
        """The measured limit, or the reason why there is none."""
        samples = self.measure(gpu)
        if not all(0 < sample < math.inf for sample in samples):
            return f"lost in noise: samples from {min(samples):.3g} to {max(samples):.3g} {self.unit}"
        spread = Spread.of(samples)
        return Limit(self.name, self.title, self.unit, spread.median, spread.min, spread.max)


_HOPPER = ("sm_90",)
_PEERS = ("two-gpus",)
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
    Primitive("memory_read", "memory read alone", "GB/s", lambda gpu: gpu.memory_read()),
    Primitive("memory_update", "memory read and stored in place", "GB/s", lambda gpu: gpu.memory_update()),
    Primitive("l2_read", "reads from L2", "GB/s", lambda gpu: gpu.l2_read()),
    Primitive("gemm_float32", "matrix product, float32", "TFLOP/s", lambda gpu: gpu.product("float32"), _BLAS),
    Primitive("gemm_tf32", "matrix product, tf32", "TFLOP/s", lambda gpu: gpu.product("tf32"), _AMPERE_BLAS),
    Primitive("gemm_bfloat16", "matrix product, bf16", "TFLOP/s", lambda gpu: gpu.product("bfloat16"), _AMPERE_BLAS),
    Primitive("gemm_float16", "matrix product, fp16", "TFLOP/s", lambda gpu: gpu.product("float16"), _BLAS),
    # No graph node may be measured after it: it changes them in this process.
    Primitive(
        "graph_node_after_two_streams",
        "graph node, a block per SM, once two streams were used",
        "us",
        lambda gpu: gpu.graph_node_after_two_streams(),
    ),
    Primitive("peer_hop", "word into another GPU's memory", "us", lambda gpu: gpu.peer_hop(), _PEERS),
    Primitive("peer_copy", "copy into another GPU's memory", "GB/s", lambda gpu: gpu.peer_copy(), _PEERS),
)  # fmt: skip
"""In the order of the table."""

ATTEMPTS = 2  # per primitive, if another process uses the GPU meanwhile
HOPS = ("cluster_hop_2", "cluster_hop_16")
EXCHANGES = (*HOPS, "grid_barrier")
"""The primitives that bring data from one multiprocessor to others."""


def _first_gpu() -> Primitives:
    """The primitives of the first visible GPU; imports CUDA's packages, which machines without a GPU lack."""
    from common.cuda.primitives import Primitives

    return Primitives()


def measure_limits(
    open_gpu: Callable[[], Primitives] = _first_gpu, open_monitor: Callable[[], GpuMonitor] = GpuMonitor
) -> LimitsRecord:
    """Measure every primitive on the first visible GPU, in a few seconds; raises UsageError without one.

    A primitive that the GPU lacks, that fails, or that another process disturbs is skipped with the reason.
    """
    if reason := missing(("cuda",)):
        raise UsageError(f"limits: {reason}; they can only be measured on a machine with an NVIDIA GPU")
    begin = time.perf_counter()
    try:
        gpu = open_gpu()
    except Exception as error:  # any class of CUDA's libraries: out of memory, a GPU in exclusive use
        raise UsageError(f"limits: the GPU cannot be used ({error}); free it, or see `doctor`") from error
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


def bounds(record: LimitsRecord, problem: Problem, precision: Precision, design: Design | None) -> StepBounds | None:
    """The cheat limit of the problem on that GPU, and the floor of a stage's design (see `common.cost`).

    None if a primitive that the formulas need was not measured.
    """
    rates = rates_of(record)
    if rates is None:
        return None
    return StepBounds(
        cheat_limit_us=cost.cheat_limit(problem, precision, rates),
        design=None
        if design is None
        else DesignFloor(
            launching_us=cost.launching_floor(design, rates),
            kernels_us=cost.kernels_floor(problem, design, rates),
            waiting_us=cost.waiting_floor(design, rates),
            exchanging_us=cost.exchanging_floor(design, rates),
            flops=float(sum(operation.flops for operation in cost.operations(problem))),
            bytes=float(cost.traffic(problem, design, rates)),
            arithmetic=" or ".join(str(unit) for unit in design.arithmetic),
        ),
    )


def bounds_of(
    record: LimitsRecord, stage: Stage, problem: Problem, steps: int, profile: Profile | None
) -> StepBounds | None:
    """The bounds of a stage, in epochs of `steps` steps; without a recipe or a profile only the cheat limit."""
    design = None
    if stage.traits is not None and profile is not None:
        chip = record.chip
        exchanges = stage.exchanges(problem, steps, chip.multiprocessors, chip.block_shared_bytes)
        design = design_of(profile, steps, stage.traits, exchanges)
    return bounds(record, problem.on_one_gpu if stage.takes_gpus else problem, stage.precision, design)


def design_of(profile: Profile, steps: int, traits: Traits, exchanges: Exchanges) -> Design:
    """A stage's design: launches, kernels and waits per step, counted by a profile of epochs of `steps` steps.

    The recipe's traits are properties that no profile shows. `exchanges` happen inside kernels. A read-back counts as
    two waiting calls in a profile: the blocking copy and the synchronisation after it.
    """
    read_backs = sum(copy.per_epoch for copy in profile.copies if copy.direction == "device to host") / steps
    return Design(
        kernels=profile.kernels_per_step,
        launches=profile.launches_per_step,
        waits=max(profile.syncs_per_epoch / steps - 2 * read_backs, 0.0),
        read_backs=read_backs,
        are_dependents=traits.are_dependents,
        exchanges=exchanges,
        arithmetic=traits.arithmetic,
        last_layer=traits.last_layer,
        weights="kept" if profile.kernels_per_step < 1 else traits.weights,
    )


def rates_of(record: LimitsRecord) -> Rates | None:
    """The best sample of each primitive, in the cost model's units; None if one is missing or was disturbed."""
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
            peer_hop_us=best.get("peer_hop"),
            peer_bytes=best["peer_copy"] * 1e3 if "peer_copy" in best else None,
            memory_bytes=max(best["memory_copy"], best.get("memory_update", 0.0)) * 1e3,
            reading_bytes=best["memory_read"] * 1e3 if "memory_read" in best else None,
            l2_bytes=best["l2_read"] * 1e3,
            flops=flops,
            l2_size=record.chip.l2_bytes,
            on_chip_size=record.chip.on_chip_bytes,
            multiprocessors=record.chip.multiprocessors,
        )
    except KeyError:
        return None


def _measure(primitive: Primitive, gpu: Primitives, monitor: GpuMonitor) -> Limit | str:
    """The measured limit, or the reason why there is none."""
    if reason := missing(primitive.needs):
        return reason
    for _ in range(ATTEMPTS):
        measured = _measure_once(primitive, gpu)
        if isinstance(measured, str) or not any(state.other_processes for state in monitor.read()):
            return measured
    # Two processes share a GPU in turns. A bound from half its rate would call a correct stage's time impossible.
    return SHARED


def _measure_once(primitive: Primitive, gpu: Primitives) -> Limit | str:
    try:
        return primitive.limit(gpu)
    except Exception as error:  # any class of CUDA's libraries
        return f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0]}"


def main(target: Path) -> None:
    """Measure and write the record to `target`; a UsageError becomes one line on standard error and exit code 1."""
    die_with_parent()
    try:
        record = measure_limits()
    except UsageError as error:
        sys.exit(str(error))
    atomic_write(target, msgspec.json.encode(record))


def kept_limits(environment: Mapping[str, Any]) -> LimitsRecord | None:
    """Today's limits of the first visible GPU on a machine so described; None if they are still to be measured.

    They drift by less from hour to hour than their samples spread, and measuring them takes as long as ten stages.
    """
    with suppress(OSError, ValueError, msgspec.MsgspecError):
        return msgspec.json.decode(_file(environment).read_bytes(), type=LimitsRecord)
    return None


def keep_limits(environment: Mapping[str, Any], limits: LimitsRecord) -> None:
    """Keep limits that were measured just now, unless another process disturbed them; a refusing disk is no error."""
    if SHARED not in limits.skipped.values():
        file = _file(environment)
        kept = msgspec.structs.replace(limits, measured=datetime.now(UTC).isoformat(timespec="seconds"))
        with suppress(OSError):
            file.parent.mkdir(parents=True, exist_ok=True)
            for old in file.parent.glob("*.json"):
                if old.name.partition(".")[0] < file.name.partition(".")[0]:  # of an earlier day
                    old.unlink()
            atomic_write(file, msgspec.json.encode(kept))


def _file(environment: Mapping[str, Any]) -> Path:
    """Where today's limits of this machine's first GPU are kept."""
    described = {part: environment.get(part) for part in ("gpu", "cpu", "libraries")}
    device = [gpu.pci_bus_id for gpu in driver.devices()[:1]]
    subject = msgspec.json.encode([described, device, source_hash(MEASURED_BY)], order="sorted")
    today = datetime.now(UTC).date().isoformat()
    return cache_folder("limits") / f"{today}.{hashlib.sha256(subject).hexdigest()[:16]}.json"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
