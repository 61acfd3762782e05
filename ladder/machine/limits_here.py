"""The limits of this machine: its GPU's, or its CPU's if it has no GPU."""

from __future__ import annotations

from ladder.machine.cpu_limits import measure_cpu_limits
from ladder.machine.environment import missing
from ladder.machine.limits import measure_limits
from ladder.records.limits import CpuLimits, LimitsRecord


def measure_limits_here() -> LimitsRecord | CpuLimits:
    """Measure them, in a few seconds; raises UsageError if what measures them is not installed."""
    return measure_cpu_limits() if missing(("cuda",)) else measure_limits()
