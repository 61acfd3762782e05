"""The part of a CPU stage's step that takes longest, its rate of arithmetic, and the rung to read next.

A reference has no profile on the CPU, so only its rate is told.
"""

from __future__ import annotations

import re
import statistics

from ladder.records.run import PACE_SIZE, Results, StageResult
from reports.facts import numbers
from reports.facts.kernel_bottleneck import Advice
from reports.facts.launch_regimes import change_in_words
from reports.facts.time_breakdown import BARRIERS, OPERATIONS, PYTHON, Profiled, profiled

PACE_OPERATIONS = 2 * PACE_SIZE**3
UNKNOWN = "It has no profile, so what bounds the step is not known."


def next_on_cpu(results: Results, stage: StageResult) -> Advice:
    """What bounds a timed stage on the CPU, and the rung above it."""
    rung = profiled(stage)
    told = _rate(results, stage) if rung is None else _largest(results, rung)
    above = next((known for known in results.stages if known.below == stage.name and known.status == "passed"), None)
    return Advice(told, f"Climb to {above.name}: {change_in_words(above, results.problem)}." if above else "")


def _rate(results: Results, stage: StageResult) -> str:
    """The arithmetic rate of a whole step."""
    assert stage.timing is not None
    us = stage.timing.step_us
    products = f"{_millions(results)} of matrix products in {numbers.microseconds(us)} us"
    return f"{products}: {_pace(results, stage, us)}. {UNKNOWN}"


def _millions(results: Results) -> str:
    return f"{results.problem.product_operations / 1e6:,.1f} million operations"


def _pace(results: Results, stage: StageResult, us: float) -> str:
    """The rate of a step's products that take this long, beside the measured rate of the stage's cores."""
    rate = results.problem.product_operations / us / 1e3
    return f"{rate:,.0f} GFLOP/s{_beside(stage, rate)}"


def _largest(results: Results, profiled: Profiled) -> str:
    """The largest part of a profiled step, with its likely cause."""
    parts = profiled.detailed_us
    name, us = max(parts.items(), key=lambda part: part[1])
    total, profile = sum(parts.values()), profiled.profile
    share = f"{numbers.aligned(us, total)} us ({numbers.share(us / total)} of a step)"
    if name == PYTHON:
        calls = numbers.per_step(profile.launches_per_step)
        return f"Python between kernels takes {share}: it calls compiled code {calls} times per step."
    if name == BARRIERS:
        steps = profiled.stage.timing.steps_per_epoch if profiled.stage.timing else 1
        barriers = numbers.per_step(profile.syncs_per_epoch / steps)
        where = f"at {barriers} barriers per step" if profile.syncs_per_epoch else "at the end of an epoch"
        return f"Threads wait for one another for {share}, {where}."
    if name == OPERATIONS["gemm"]:
        return f"Matrix products take {share}: {_millions(results)}, {_pace(results, profiled.stage, us)}."
    kinds = [kind for kind, words in OPERATIONS.items() if words == name]
    slowest = max((k for k in profile.kernels if k.kind in kinds), key=lambda k: k.us_per_step)
    return f"The largest part is {name}, {share}; its slowest kernel is {slowest.name}."


def _beside(stage: StageResult, rate: float) -> str:
    """The threads, and the rate that NumPy's float32 product had on their cores just before and after the stage.

    A share only for as many cores as threads, and only up to the whole: a stage may multiply faster, or less.
    """
    match = re.search(r"(\d+) (?:\w+ )?threads?\b", stage.detail)
    threads = int(match[1]) if match else 0
    told = f" on {numbers.count(threads, 'thread')}" if threads else ""
    known = [process for process in stage.processes if process.pace_cores == threads > 0]
    paces = [process.pace_s for process in known if process.pace_s is not None]
    if not paces:
        return told
    measured = PACE_OPERATIONS / statistics.median(paces) / 1e9
    share = f"{numbers.rough_share(rate / measured)} of" if rate <= measured else "above"
    cores = numbers.count(threads, "core")
    return f"{told}, {share} the {measured:,.0f} GFLOP/s that NumPy's float32 product reached beside it on {cores}"
