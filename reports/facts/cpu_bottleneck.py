"""The bound of a stage on the CPU, and one thing to try; no tool profiles it, so its time must do."""

from __future__ import annotations

import re

from ladder.records.run import ProblemRecord, StageResult
from reports.facts import numbers
from reports.facts.advice import Advice
from reports.facts.network_size import product_operations

CORE = 64.0  # GFLOP/s of a CPU's core: two 8-wide fused multiply-adds a cycle at 2 GHz
NEAR_ARITHMETIC = 0.5  # share of the cores' rate


def next_on_cpu(problem: ProblemRecord, stage: StageResult) -> Advice:
    """The arithmetic rate of a timed stage on the CPU, the bound that it suggests, and one thing to try."""
    assert stage.timing is not None
    step_us = stage.timing.step_us
    operations = product_operations(problem)
    rate = operations / step_us / 1e3
    told = (
        f"{operations / 1e6:,.1f} million operations of matrix products in {numbers.microseconds(step_us)} us: "
        f"{rate:,.0f} GFLOP/s"
    )
    found = re.search(r"(\d+) (?:\w+ )?threads?\b", stage.detail)
    if found is None:
        return Advice(
            f"{told}.", "Far below the CPU's own rate, join the operations between the products in compiled loops."
        )
    threads = int(found[1])
    share = rate / threads / CORE
    told += (
        f" on {numbers.count(threads, 'thread')}, {numbers.rough_share(share)} of the rate of as many cores with "
        "8-wide FMA at 2 GHz."
    )
    if share >= NEAR_ARITHMETIC:
        return Advice(f"{told} Arithmetic bounds the step.", "Try a BLAS with wider instructions for this CPU.")
    return Advice(
        f"{told} The rest goes to calls, narrow products and passes over arrays.",
        "Join the operations between the products in compiled loops.",
    )
