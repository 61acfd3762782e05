"""Summarises a trace as the profile of a stage: the average step, its kernels, copies and calls, and a picture."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

import msgspec

from common.cost import Operation, operations
from common.cuda.driver import Multiprocessor
from common.problem import Problem
from ladder.profile import time_split
from ladder.profile.api_names import allocates
from ladder.profile.kernel_kinds import kind_of
from ladder.profile.time_split import waiting_calls
from ladder.profile.trace import FROM_PYTHON, Call, Copy, Kernel, Trace, Window
from ladder.records.profile import CallUse, CopyUse, KernelUse, Kind, Profile, Row, Span, Split, Tool
from ladder.records.run import Process

SPLIT_K_REDUCTION = "splitKreduce"  # second kernel of a product that cuBLAS divides along K
WARP = 32  # threads
REGISTER_UNIT = 256  # registers are allocated to a warp in this granularity
WARP_UNIT = 4  # one warp per partition of the multiprocessor
SHARED_UNIT = 128  # bytes; granularity of shared memory
NS = 1e3  # per microsecond


def summarise(
    trace: Trace,
    weights: Sequence[float],
    steps: int,
    tool: Tool,
    plain_step_us: float,
    multiprocessor: Multiprocessor | None = None,
) -> Profile:
    """The profile of epochs of `steps` steps each.

    `weights` are the shares of a run that the trace's windows represent, in order; `plain_step_us` is the time of a
    step without the tool.
    """
    return _Means(trace, weights, steps).profile(tool, plain_step_us, multiprocessor)


class _Means:
    """Means over the epochs of a trace, weighted."""

    def __init__(self, trace: Trace, weights: Sequence[float], steps: int) -> None:
        self._trace = trace
        self._weights = weights
        self._steps = steps
        self._epochs = [_within(trace, window) for window in trace.windows]
        self._threads = [epoch.by_thread() for epoch in self._epochs]
        self._syncs = [[_waits(thread) for thread in threads] for threads in self._threads]

    def profile(self, tool: Tool, plain_step_us: float, multiprocessor: Multiprocessor | None) -> Profile:
        seen = self._seen()
        steady = max(range(len(self._epochs)), key=lambda epoch: self._weights[epoch])
        spans, span_us = excerpt(self._epochs[steady], self._steps)
        window_ns = [window.end - window.start for window in self._trace.windows]
        busy_ns = [time_split.length(time_split.union([*e.kernels, *e.copies], e.windows[0])) for e in self._epochs]
        return Profile(
            tool=tool,
            epochs=[window.epoch for window in self._trace.windows],
            plain_step_us=plain_step_us,
            step_us=seen.total_us,
            seen=seen,
            split=scaled(seen, plain_step_us) if tool == "stamps" else without_tool(seen, plain_step_us),
            kernels_per_step=self._mean(len(epoch.kernels) for epoch in self._epochs) / self._steps,
            launches_per_step=self._mean(_calls(epoch, "Launch", FROM_PYTHON) for epoch in self._epochs) / self._steps,
            graph_launches_per_epoch=self._mean(_calls(epoch, "GraphLaunch") for epoch in self._epochs),
            syncs_per_epoch=self._mean(statistics.fmean(map(len, threads)) for threads in self._syncs),
            sync_us_per_step=self._mean(statistics.fmean(map(_host_ns, threads)) for threads in self._syncs)
            / NS
            / self._steps,
            allocations_per_epoch=self._allocations(),
            busy_share=self._mean(busy_ns) / self._mean(window_ns),
            kernels=self._kernels(self._threads[steady], multiprocessor),
            copies=self._copies(),
            calls=self._calls(),
            timeline=spans,
            timeline_us=span_us,
            overlap_us=self._mean(statistics.fmean(map(_overlap_ns, threads)) for threads in self._threads)
            / NS
            / self._steps,
        )

    def _mean(self, values: Iterable[float]) -> float:
        return sum(weight * value for weight, value in zip(self._weights, values, strict=True))

    def _seen(self) -> Split:
        done = [max((kernel.end for kernel in epoch.kernels), default=0) for epoch in self._epochs]
        parts = [
            [time_split.split(trace, trace.windows[0], end) for trace in threads]
            for threads, end in zip(self._threads, done, strict=True)
        ]

        def mean(name: str) -> float:
            by_epoch = (statistics.fmean(getattr(part, name) for part in threads) for threads in parts)
            return self._mean(by_epoch) / NS / self._steps

        return Split(mean("kernels"), mean("copies"), mean("queued"), mean("launching"), mean("waiting"))

    def _allocations(self) -> dict[str, float]:
        names = sorted(filter(allocates, {call.name for epoch in self._epochs for call in epoch.calls}))
        return {name: self._mean(sum(c.name == name for c in e.calls) for e in self._epochs) for name in names}

    def _copies(self) -> list[CopyUse]:
        uses = []
        for direction in sorted({copy.direction for epoch in self._epochs for copy in epoch.copies}):
            of = [[copy for copy in epoch.copies if copy.direction == direction] for epoch in self._epochs]
            device_ns = self._mean(sum(copy.end - copy.start for copy in copies) for copies in of)
            count, size = self._mean(map(len, of)), self._mean(sum(copy.bytes for copy in copies) for copies in of)
            hidden_ns = self._mean(map(_beside_kernels, self._epochs, of))
            uses.append(CopyUse(direction, count, size, device_ns / NS / self._steps, hidden_ns / NS / self._steps))
        return uses

    def _calls(self) -> list[CallUse]:
        uses = []
        for name in {call.name for epoch in self._epochs for call in epoch.calls}:
            of = [[call for call in epoch.calls if call.name == name] for epoch in self._epochs]
            host_us = self._mean(_host_ns(calls) for calls in of) / NS / self._steps
            uses.append(CallUse(name, self._mean(len(calls) for calls in of), host_us))
        return sorted(uses, key=lambda use: (-use.us_per_step, use.name))

    def _kernels(self, threads: Sequence[Trace], multiprocessor: Multiprocessor | None) -> list[KernelUse]:
        """Kernels by place in the step if all steps run the same ones, otherwise by name, the longest first.

        Threads of the CPU run the same kernels, though some do not run all of them.
        """
        groups: dict[object, list[Kernel]] = defaultdict(list)
        by_place = True
        for thread in threads:
            step = self._same_in_every_step(thread.kernels)
            by_place = by_place and bool(step)
            for index, kernel in enumerate(thread.kernels):
                groups[step[index % len(step)] if step else kernel.name].append(kernel)
        uses = [
            self._kernel(place if by_place else None, runs, len(threads), multiprocessor)
            for place, runs in enumerate(groups.values())
        ]
        return uses if by_place else sorted(uses, key=lambda use: (-use.us_per_step, use.name))

    def _same_in_every_step(self, kernels: Sequence[Kernel]) -> list[tuple[str, int]]:
        """The kernels of each step by name, with the number of earlier ones of that name; empty if steps differ."""
        per_step, rest = divmod(len(kernels), self._steps)
        names = [kernel.name for kernel in kernels]
        step = names[:per_step]
        if rest or any(names[at : at + per_step] != step for at in range(0, len(names), per_step or 1)):
            return []
        return [(name, step[:place].count(name)) for place, name in enumerate(step)]

    def _kernel(
        self, place: int | None, runs: list[Kernel], cpu_threads: int, multiprocessor: Multiprocessor | None
    ) -> KernelUse:
        """The runs of one kernel on a GPU or on threads of the CPU, summed up; its shape is the most frequent one."""
        of_cpu = len({run.thread for run in runs}) if cpu_threads > 1 else 0
        shapes = Counter((r.registers, r.shared_bytes, of_cpu or r.blocks, r.threads, r.cluster) for r in runs)
        registers, shared_bytes, blocks, threads, cluster = shapes.most_common(1)[0][0]
        return KernelUse(
            name=runs[0].name,
            kind=kind_of(runs[0].name),
            place=place,
            per_step=len(runs) / self._steps,
            us_per_step=sum(run.end - run.start for run in runs) / NS / self._steps / cpu_threads,
            us_each=statistics.median(run.end - run.start for run in runs) / NS,
            registers=registers,
            shared_bytes=shared_bytes,
            blocks=blocks,
            threads=threads,
            cluster=cluster,
            occupancy=occupancy(multiprocessor, registers, shared_bytes, threads) if multiprocessor else None,
            bytes=None,
        )


def without_tool(seen: Split, plain_step_us: float) -> Split:
    """The split of a step, scaled to its time without the tool.

    A tool costs host time in each recorded call, and time between the nodes of a graph. So its cost is taken out of the
    idle parts in proportion, and out of the work only if the idle parts are too short.
    """
    work = seen.work_us
    idle = seen.total_us - work
    kept_idle = max(0.0, plain_step_us - work) / idle if idle else 0.0
    kept_work = min(1.0, plain_step_us / work) if work else 1.0
    return Split(
        seen.kernels_us * kept_work,
        seen.copies_us * kept_work,
        seen.queued_us * kept_idle,
        seen.launching_us * kept_idle,
        seen.waiting_us * kept_idle,
    )


def _within(trace: Trace, window: Window) -> Trace:
    """The part of a trace that began in one epoch."""
    begin, end = window.start, window.end
    return Trace(
        windows=[window],
        kernels=[kernel for kernel in trace.kernels if begin <= kernel.start < end],
        copies=[copy for copy in trace.copies if begin <= copy.start < end],
        calls=[call for call in trace.calls if begin <= call.start < end],
    )


def _beside_kernels(epoch: Trace, copies: list[Copy]) -> int:
    """The time in which both a copy and a kernel ran, in ns."""
    length, window = time_split.length, epoch.windows[0]
    alone = length(time_split.union(copies, window)) + length(time_split.union(epoch.kernels, window))
    return alone - length(time_split.union([*copies, *epoch.kernels], window))


def _overlap_ns(epoch: Trace) -> int:
    """The sum of the kernels' times, less the time in which any of them runs, in ns."""
    window = epoch.windows[0]
    alone = sum(max(0, min(kernel.end, window.end) - max(kernel.start, window.start)) for kernel in epoch.kernels)
    return alone - time_split.length(time_split.union(epoch.kernels, window))


def scaled(seen: Split, plain_step_us: float) -> Split:
    """The split of a step, with every part scaled alike to its time without the tool.

    Time stamps cost the same everywhere, and other work on a CPU slows all parts of a step down.
    """
    factor = plain_step_us / seen.total_us
    return Split(*(getattr(seen, part) * factor for part in Split.__struct_fields__))


def _waits(thread: Trace) -> list[Call]:
    """The host's waits; on a GPU without the last one, the fence by which the harness ends the epoch."""
    waits = time_split.waiting_calls(thread)
    return waits if any(call.name == FROM_PYTHON for call in thread.calls) else waits[:-1]


def _calls(epoch: Trace, *words: str) -> int:
    names = Counter(call.name for call in epoch.calls)
    return sum(count for name, count in names.items() if any(word in name for word in words))


def _host_ns(calls: Iterable[Call]) -> int:
    """The time in these calls in ns; nested calls, as from the runtime into the driver, count once."""
    return time_split.length(time_split.merged((call.start, call.end) for call in calls))


def averaged(first: Profile, processes: Sequence[Process]) -> Profile:
    """The first process's profile, with step times averaged over all profiled processes.

    Processes of a host-bound stage differ by several per cent. The profile should explain the time over all of them, so
    each is split by its own profile.
    """
    both = [(own.seen, own.split) for own in processes if own.seen is not None and own.split is not None]
    if not both:  # an older record, without splits per process
        return first
    seen, split = Split.mean([seen for seen, _ in both]), Split.mean([split for _, split in both])
    return msgspec.structs.replace(
        first, plain_step_us=split.total_us, step_us=seen.total_us, seen=seen, split=split, processes=len(both)
    )


def occupancy(has: Multiprocessor, registers: int, shared_bytes: int, threads: int) -> float:
    """The share of a multiprocessor's warps that blocks of this kernel can fill, from 0 to 1.

    By the rules of the calculator in Nsight Compute and the allocation units of the "CUDA C++ Programming Guide", alike
    from sm_75 to sm_120.

    `registers` are per thread; `shared_bytes` (without the system's reserve) and `threads` are per block.
    """
    warps = -(-threads // WARP)
    fit = [has.blocks, has.threads // WARP // warps]
    if registers:
        of_warp = _round_up(registers * WARP, REGISTER_UNIT)
        fit.append(has.registers // of_warp // WARP_UNIT * WARP_UNIT // warps)
    shared = _round_up(shared_bytes + has.reserved_shared_bytes, SHARED_UNIT)
    if shared:
        fit.append(has.shared_bytes // shared)
    return min(fit) * warps / (has.threads // WARP)


def _round_up(number: int, unit: int) -> int:
    """The smallest multiple of `unit` that is not less than `number`."""
    return -(-number // unit) * unit


def with_bytes(profile: Profile, problem: Problem) -> Profile:
    """The profile of a rung, with the bytes of each kernel's operation.

    It stays unchanged if kernels and operations do not correspond one to one, as in a rung that fuses operations.
    """
    for with_totals in (False, True):
        kernels = _paired(profile.kernels, operations(problem, with_totals))
        if kernels:
            return msgspec.structs.replace(profile, kernels=kernels)
    return profile


def _paired(kernels: Sequence[KernelUse], step: Sequence[Operation]) -> list[KernelUse]:
    """The kernels with the bytes of their operations; empty unless there is one kernel per operation, in order."""
    left = list(step)
    pairs = []
    for kernel in kernels:
        if kernel.name.startswith(SPLIT_K_REDUCTION):
            pairs.append(kernel)
        elif kernel.place is not None and left and left[0].kind == kernel.kind:
            pairs.append(msgspec.structs.replace(kernel, bytes=left.pop(0).bytes))
        else:
            return []
    return [] if left else pairs


STEPS = 3
NS = 1e3  # per microsecond


def excerpt(epoch: Trace, steps: int) -> tuple[list[Span], float]:
    """The bars of three steps in the middle of an epoch of `steps` steps, and their duration in us.

    They begin with the launch of the first kernel, unless that lies more than a step back: a graph is launched once for
    many steps. There are no bars if one kernel runs many steps.
    """
    kernels = epoch.by_thread()[0].kernels
    on_cpu = any(call.name == FROM_PYTHON for call in epoch.calls)
    count = min(STEPS, steps)
    first = _usual(kernels, steps, count) if on_cpu else (steps - count) // 2
    at = [round(len(kernels) / steps * step) for step in (first, first + count)]
    if len(kernels) < steps:
        return [], 0.0
    begin = kernels[at[0]].start
    end = kernels[at[1]].start if at[1] < len(kernels) else epoch.windows[0].end
    launches = {call.correlation: call.start for call in epoch.calls}
    launched = launches.get(kernels[at[0]].correlation, begin)
    if begin - launched < (end - begin) / count:
        begin = launched

    host: Row = "cpu" if on_cpu else "host"
    device: Row = "cpu" if on_cpu else "gpu"

    def span(row: Row, name: str, kind: Kind, start: int, stop: int, thread: int = 0) -> Span:
        start, stop = max(start, begin), min(stop, end)
        return Span(row, name, kind, (start - begin) / NS, (stop - start) / NS, thread if on_cpu else 0)

    waits = {id(call) for call in waiting_calls(epoch)}
    bars = [
        *(
            span(host, call.name, _call_kind(call.name, id(call) in waits), call.start, call.end, call.thread)
            for call in epoch.calls
            if call.start < end and call.end > begin and call.name != FROM_PYTHON
        ),
        *(
            span(device, kernel.name, kind_of(kernel.name), kernel.start, kernel.end, kernel.thread)
            for kernel in epoch.kernels
            if kernel.start < end and kernel.end > begin
        ),
        *(
            span(device, copy.direction, "copy", copy.start, copy.end)
            for copy in epoch.copies
            if copy.start < end and copy.end > begin
        ),
    ]
    return bars, (end - begin) / NS


def _usual(kernels: Sequence[Kernel], steps: int, count: int) -> int:
    """The first of `count` steps that last as long as most: on a CPU, other work may interrupt any of them."""
    starts = [kernels[len(kernels) * step // steps].start for step in range(steps)] if len(kernels) >= steps else []
    lasted = [after - before for before, after in zip(starts, starts[count:], strict=False)]
    if not lasted:
        return (steps - count) // 2
    usual = statistics.median(lasted)
    return min(range(len(lasted)), key=lambda step: abs(lasted[step] - usual))


def _call_kind(name: str, waits: bool) -> Kind:
    if waits:
        return "wait"
    if "Launch" in name:
        return "launch"
    return "copy" if "Memcpy" in name or "Memset" in name else "other"
