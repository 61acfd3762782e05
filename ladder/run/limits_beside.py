"""Measures the limits that a run's stages are compared with: in processes of their own, beside nothing else.

If that fails, the run only lacks bounds.
"""

from __future__ import annotations

from collections.abc import Sequence

from ladder.machine.environment import missing
from ladder.machine.limits import keep_limits
from ladder.run.bench import Bench
from ladder.run.bounds import Bounds
from ladder.run.ledger import Ledger
from ladder.run.observer import RunObserver
from ladder.run.stage_run import StageRun

ACTIVITY = "measuring limits"


def measure_cpu_limits(stages: Sequence[StageRun], ledger: Ledger, bench: Bench, observer: RunObserver) -> None:
    """Measure the CPU's limits, unless they are known, or none of these stages is a rung on the CPU."""
    if ledger.settings.at_once == 1 and ledger.results.cpu_limits is None and any(one.is_on_cpu for one in stages):
        observer.step("measuring the CPU's limits")
        with ledger.timing(ACTIVITY):
            ledger.keep(cpu_limits=bench.cpu_limits())


def measure_gpu_limits(
    stages: Sequence[StageRun], ledger: Ledger, bench: Bench, bounds: Bounds, observer: RunObserver
) -> None:
    """Measure the GPU's limits, unless they are known, or none of these stages needs a GPU.

    They take longer than the first rows, and so come after them: a row that lies below them fails then.
    """
    if ledger.settings.at_once > 1 or ledger.results.limits is not None or missing(("cuda",)) is not None:
        return
    if not any(one.entry.stage.needs for one in stages):
        return
    observer.step("measuring the GPU's limits")
    with ledger.timing(ACTIVITY):
        limits = bench.gpu_limits()
    if limits is not None:
        keep_limits(ledger.results.environment, limits)
    ledger.keep(limits=limits)
    for stage in ledger.stages:
        passed = stage.status == "passed"
        if stage.device == "gpu":
            bounds.check(stage)
        if passed and stage.status != "passed":
            observer.note(f"{stage.name}: {stage.reason}")
