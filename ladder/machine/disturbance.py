"""Decides whether something disturbed a process while it measured: falling clocks, or other work on GPU or host.

The decision uses circumstances only, never the times: repeating slow processes would make every stage look faster.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Sequence

from msgspec.structs import replace

from ladder.machine.cpu_speed import SLOWDOWN_LIMIT
from ladder.records.run import LOST_LIMIT, Process, lost_in_words

# Above these limits a process counts as disturbed.
CLOCK_DROP_LIMIT = 0.03  # as a share of the highest clock in any of the stage's processes
OTHER_LOAD_LIMIT = 0.10  # share of the host's cores that other processes use: they share caches, memory and clocks
# With this many cores idle, a thread that waits is waiting to be woken: no other process took its core.
IDLE_CORES = 1.0
LOST_TIME_FLOOR_S = 0.005  # less lost time is the kernel's housekeeping, near the resolution of its accounting


def with_disturbances(processes: Sequence[Process], set_aside: Iterable[Process], *, on_gpu: bool) -> list[Process]:
    """A stage's processes, each with the reasons why it is disturbed; those set aside serve for comparison only."""
    events = _found([*processes, *set_aside], on_gpu=on_gpu)
    return [
        replace(process, disturbed=[reason for reason, _ in reasons])
        for process, reasons in zip(processes, events, strict=False)
    ]


def least_disturbed(attempts: Sequence[Process], others: Iterable[Process], *, on_gpu: bool) -> Process:
    """The attempt at one measurement that circumstances disturbed least; of equals, the latest.

    What disturbed an attempt is added up, each in multiples of its limit. The times play no part. The other processes
    of the stage serve for comparison only.
    """
    events = _found([*attempts, *others], on_gpu=on_gpu)[: len(attempts)]
    burdens = [sum(multiple for _, multiple in reasons) for reasons in events]
    return min(reversed(list(zip(burdens, attempts, strict=True))), key=lambda pair: pair[0])[1]


def _found(everyone: Sequence[Process], *, on_gpu: bool) -> list[list[tuple[str, float]]]:
    """What disturbed each process, compared with a stage's other processes."""
    clocks = [state.sm_mhz for process in everyone for state in process.gpu_states if state.sm_mhz is not None]
    highest = max(clocks, default=0) if on_gpu else None
    fastest_s: dict[int, float] = {}  # by the number of cores that the pace is of
    for process in everyone:
        if process.pace_s is not None:
            fastest_s[process.pace_cores] = min(process.pace_s, fastest_s.get(process.pace_cores, process.pace_s))
    return [list(_reasons(process, highest, fastest_s.get(process.pace_cores))) for process in everyone]


def _reasons(process: Process, highest_mhz: int | None, fastest_s: float | None) -> Iterator[tuple[str, float]]:
    """Why the timed runs count as disturbed, and how many times its limit that is; an event without a measure is 1.

    `highest_mhz` is None for a stage that uses no GPU.
    """
    runs = len(process.runs_s)
    timed = process.gpu_states[-runs:] if highest_mhz is not None else []
    if slowed := sorted({why for state in timed for why in state.throttle_reasons or ()}):
        yield f"the GPU slowed itself down: {', '.join(slowed)}", 1.0
    lowest = min((state.sm_mhz for state in timed if state.sm_mhz is not None), default=None)
    if lowest is not None and highest_mhz is not None and lowest < highest_mhz * (1 - CLOCK_DROP_LIMIT):
        yield f"the GPU's clock fell to {lowest} of {highest_mhz} MHz", (1 - lowest / highest_mhz) / CLOCK_DROP_LIMIT
    if any(state.other_processes for state in timed):
        yield "another process computed on the GPU", 1.0
    host = process.host_states[-runs:]
    # Readings cover more than the runs, and very short runs by far.
    covered_s = sum(state.over_s for state in host) or sum(process.runs_s)
    throttled_s = sum(state.throttled_s for state in host)
    # Linux counts time under a quota as waiting, too.
    waited_s = sum(max(state.waited_s - state.throttled_s, 0) for state in host if state.idle_cores < IDLE_CORES)
    stolen_s = sum(state.stolen_s for state in host)
    own_s = sum(state.own_s for state in host)
    worked_s = max(covered_s, stolen_s + own_s + sum(state.others * state.cores * state.over_s for state in host))
    for lost_s, in_s, reason in (
        (waited_s, covered_s, f"its threads waited for a core for {lost_in_words(waited_s, covered_s)}"),
        (throttled_s, covered_s, f"a CPU quota held it back for {lost_in_words(throttled_s, covered_s)}"),
        (stolen_s, worked_s, f"other virtual machines took {min(stolen_s / worked_s, 1.0):.0%} of the busy cores"),
    ):
        if lost_s > max(LOST_LIMIT * in_s, LOST_TIME_FLOOR_S):
            yield reason, lost_s / in_s / LOST_LIMIT
    if process.stopped_s > LOST_TIME_FLOOR_S:
        yield f"a signal stopped the process for {process.stopped_s:.2g} s", process.stopped_s / LOST_TIME_FLOOR_S
    other_load = statistics.mean([state.others for state in host]) if host else 0.0
    if other_load > OTHER_LOAD_LIMIT:
        yield f"other processes kept {other_load:.0%} of the host's cores busy", other_load / OTHER_LOAD_LIMIT
    pace_s = process.pace_s
    if pace_s is not None and fastest_s is not None and pace_s > fastest_s * (1 + SLOWDOWN_LIMIT):
        share = f"{fastest_s / pace_s:.0%} of its speed in the stage's fastest process"
        yield f"the host's CPU had {share}", (pace_s / fastest_s - 1) / SLOWDOWN_LIMIT
