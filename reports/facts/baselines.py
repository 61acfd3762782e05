"""The rows that a row is compared with: those of its own class of precision, on its own kind of device.

Half the bits run at twice the speed on the same hardware, so a ratio across classes would praise the format instead of
the code. A row on a GPU is compared with a CPU only if no candidate ran on a GPU.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ladder.records.run import Precision, Results, StageResult

# bfloat16 and float16 share a class: automatic mixed precision uses either, and both run at the same rate.
CLASSES: dict[Precision, str] = {"float32": "float32", "tf32": "tf32", "bfloat16": "bf16/fp16", "float16": "bf16/fp16"}


def precision_class(stage: StageResult) -> str:
    """A stage's class of precision: `float32`, `tf32` or `bf16/fp16`."""
    return CLASSES[stage.precision]


def torch_stages(results: Results) -> list[StageResult]:
    """Every PyTorch reference."""
    return [stage for stage in results.stages if stage.name.startswith("torch-")]


def references(results: Results) -> list[StageResult]:
    """Every stage that is not a rung."""
    return [stage for stage in results.stages if stage.group == "reference"]


def fastest_peer(stage: StageResult, candidates: Iterable[StageResult]) -> StageResult | None:
    """The fastest passed candidate of the stage's class and device; it may be the stage itself."""
    timed = [(seconds, one) for one in candidates if (seconds := epoch_s(one)) is not None]
    on_gpu = stage.device == "gpu" and any(one.device == "gpu" for _, one in timed)
    peers = [
        (seconds, one)
        for seconds, one in timed
        if (one.device == "gpu") == on_gpu and precision_class(one) == precision_class(stage)
    ]
    return min(peers, key=lambda pair: pair[0])[1] if peers else None


@dataclass(frozen=True)
class Winner:
    """The fastest rung of a class of precision, and the fastest reference of that class."""

    precision: str
    rung: StageResult
    reference: StageResult
    speedup: float


def winners(results: Results) -> Iterator[Winner]:
    """One winner for each class of precision with both a timed rung and a timed reference."""
    rungs = [stage for stage in results.stages if stage.group != "reference" and epoch_s(stage) is not None]
    for precision in dict.fromkeys(CLASSES.values()):
        peers = [rung for rung in rungs if precision_class(rung) == precision]
        best = fastest_peer(peers[0], peers) if peers else None
        reference = fastest_peer(best, references(results)) if best else None
        factor = ratio(reference, best) if best and reference else None
        if best and reference and factor is not None:
            yield Winner(precision, best, reference, factor)


def epoch_s(stage: StageResult | None) -> float | None:
    """The median seconds of an epoch; None unless the stage passed with a positive, finite time."""
    if stage is None or stage.status != "passed" or stage.timing is None:
        return None
    seconds = stage.timing.epoch_s.median
    return seconds if seconds > 0 and not math.isinf(seconds) else None


def ratio(base: StageResult | None, own: StageResult) -> float | None:
    """How many times as fast as the base a stage is; None if either has no time."""
    base_s, own_s = epoch_s(base), epoch_s(own)
    return None if base_s is None or own_s is None else base_s / own_s


def step_times_us(stage: StageResult | None) -> list[float]:
    """Microseconds a step in each of a stage's processes, the median of its runs; empty unless the stage passed."""
    if stage is None or stage.status != "passed" or stage.timing is None:
        return []
    steps = stage.timing.epochs * stage.timing.steps_per_epoch
    if steps <= 0:
        return []
    times = [statistics.median(process.runs_s) / steps * 1e6 for process in stage.processes if process.runs_s]
    return times if all(0 < time < math.inf for time in times) else []


def sm_mhz(stage: StageResult) -> float | None:
    """The median SM clock in MHz after the timed runs; None without a GPU, or if NVML reported no clock."""
    if stage.status != "passed" or stage.device != "gpu":
        return None
    clocks = [state.sm_mhz for process in stage.processes for state in process.gpu_states[-len(process.runs_s) :]]
    return statistics.median(clocks) if clocks else None


def step_cycles(stage: StageResult) -> float | None:
    """Cycles of that clock a step, which compares GPUs of one kind at different clocks."""
    clock = sm_mhz(stage)
    return stage.timing.step_us * clock if stage.timing is not None and clock is not None else None
