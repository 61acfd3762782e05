"""Whether something else took part in what a process measured: the GPU's clocks, its other users, the host's.

Only circumstances are looked at, never the times themselves: to repeat what is slow would make every stage faster.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from ladder.machine.cpu_speed import OFF_PACE
from ladder.records.run import Process

CLOCK_DROP = 0.03  # of the highest clock that any of the stage's processes had
WAITED = 0.05  # of the timed runs, by all threads together
STOLEN = 0.05  # of them, by other virtual machines
OTHERS = 0.10  # of the machine's cores, kept busy by other processes: they take caches, memory and clocks, too
IDLE = 1.0  # cores: while so many have nothing to do, whoever waits waits for being woken, and nobody took his
LEAST_S = 0.005  # a moment less than that is any kernel's housekeeping, and near the end of what it accounts for


def judged(processes: Sequence[Process], others: Iterable[Process], *, on_gpu: bool) -> list[Process]:
    """A stage's processes, each with what disturbed it; `others` are those that were set aside."""
    clocks = [state.sm_mhz for process in (*processes, *others) for state in process.gpu_states]
    highest = max(clocks, default=0) if on_gpu else None
    quickest_s = min((process.pace_s for process in (*processes, *others) if process.pace_s is not None), default=None)
    return [replace(process, disturbed=_reasons(process, highest, quickest_s)) for process in processes]


def _reasons(process: Process, highest_mhz: int | None, quickest_s: float | None) -> list[str]:
    """What disturbed the timed runs; the clock that they could have had is None for a stage that uses no GPU."""
    reasons = []
    runs = len(process.runs_s)
    timed = process.gpu_states[-runs:] if highest_mhz is not None else []
    if slowed := sorted({why for state in timed for why in state.throttle_reasons}):
        reasons.append(f"the GPU slowed itself down: {', '.join(slowed)}")
    lowest = min((state.sm_mhz for state in timed), default=0)
    if timed and highest_mhz is not None and lowest < highest_mhz * (1 - CLOCK_DROP):
        reasons.append(f"the GPU's clock fell to {lowest} of {highest_mhz} MHz")
    if any(state.other_processes for state in timed):
        reasons.append("another process computed on the GPU")
    total_s = sum(process.runs_s)
    host = process.host_states[-runs:]
    for lost_s, limit, what in (
        (sum(state.waited_s for state in host if state.idle_cores < IDLE), WAITED, "waited for a core that others had"),
        (sum(state.stolen_s for state in host), STOLEN, "other virtual machines took cores"),
    ):
        if lost_s > max(limit * total_s, LEAST_S):
            reasons.append(f"{what} for {lost_s / total_s:.0%} of the time")
    others = statistics.mean([state.others for state in host]) if host else 0.0
    if others > OTHERS:
        reasons.append(f"others kept {others:.0%} of the host's cores busy")
    pace_s = process.pace_s
    if pace_s is not None and quickest_s is not None and pace_s > quickest_s * (1 + OFF_PACE):
        reasons.append(f"the host's cores together were {pace_s / quickest_s - 1:.0%} slower than beside its others")
    return reasons
