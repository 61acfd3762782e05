"""Profiles as a tool would make them, for the sample run, with invented numbers.

Their timelines come from a host that launches kernels one by one, or as a graph, on a device that runs them in order.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from ladder.records.profile import CallUse, CopyUse, KernelUse, Kind, Profile, Span, Split, Tool

CUBLAS = (
    "sm80_xmma_gemm_f32f32_f32f32_f32_nt_n_tilesize32x32x8_stage3_warpsize1x2x1_ffma_aligna4_alignc4"
    "_execute_kernel__5x_cublas"
)
LAUNCH_US, GAP_US, READ_US = 3.0, 1.0, 12.0  # a launch, a gap between kernels, reading a number back


def kernel(name: str, kind: Kind, us: float, place: int | None = None, *, blocks: int = 8, moved: int = 0) -> KernelUse:
    return KernelUse(
        name=name,
        kind=kind,
        place=place,
        per_step=1.0,
        us_per_step=us,
        us_each=us,
        registers=32,
        shared_bytes=2048,
        blocks=blocks,
        threads=256,
        cluster=1,
        occupancy=None if moved == 0 else 0.625,
        bytes=moved or None,
    )


def own_kernels(gemm: str = "gemm_naive", gemm_us: float = 23.5) -> list[KernelUse]:
    """The kernels of a step of softmax regression, in order."""
    step: list[tuple[str, Kind, float]] = [
        (gemm, "gemm", gemm_us),
        ("add_bias", "layer", 0.9),
        ("softmax", "softmax", 2.7),
        ("softmax_xent_backward", "softmax", 0.96),
        ("softmax_xent_totals", "softmax", 2.3),
        (gemm, "gemm", gemm_us / 4),
        ("bias_gradient", "layer", 1.1),
        ("sgd_update", "update", 1.0),
    ]
    return [kernel(name, kind, us, place, moved=401_408) for place, (name, kind, us) in enumerate(step)]


def profile(
    split: Split,
    kernels: list[KernelUse],
    *,
    tool: Tool = "cupti",
    slowdown: float = 0.1,
    as_graph: bool = False,
    reads: bool = False,
    kernels_per_step: float | None = None,
) -> Profile:
    """A profile with this split; `reads`: the host reads a number back after every step."""
    timeline, timeline_us = three_steps(kernels, as_graph=as_graph, reads=reads)
    grown = 1 + slowdown
    idle_us = split.total_us * slowdown
    return Profile(
        tool=tool,
        epochs=[8, 9],
        plain_step_us=split.total_us,
        step_us=split.total_us * grown,
        seen=replace(split, launching_us=split.launching_us + idle_us),
        split=split,
        kernels_per_step=len(kernels) if kernels_per_step is None else kernels_per_step,
        launches_per_step=1 / 468 if as_graph else len(kernels),
        graph_launches_per_epoch=1.0 if as_graph else 0.0,
        syncs_per_epoch=468.0 if reads else 0.0,
        sync_us_per_step=READ_US if reads else 0.0,
        allocations_per_epoch={"cudaMallocAsync": 468.0, "cudaFree": 0.0} if reads else {},
        busy_share=(split.kernels_us + split.copies_us) / split.total_us / grown,
        kernels=kernels,
        copies=[CopyUse("device to host", 468.0, 468 * 16.0, 0.9)] if reads else [],
        calls=[CallUse("cuLaunchKernelEx", 468.0 * len(kernels), LAUNCH_US * len(kernels))],
        timeline=timeline,
        timeline_us=timeline_us,
    )


def three_steps(kernels: Sequence[KernelUse], *, as_graph: bool, reads: bool) -> tuple[list[Span], float]:
    """The bars of three steps, and their length in microseconds."""
    spans: list[Span] = []
    host = device = 0.0

    def call(name: str, kind: Kind, us: float) -> None:
        nonlocal host
        spans.append(Span("host", name, kind, host, us))
        host += us

    def work(name: str, kind: Kind, us: float, handed_over: float) -> None:
        nonlocal device
        start = max(device + GAP_US, handed_over)
        spans.append(Span("gpu", name, kind, start, us))
        device = start + us

    if as_graph:
        call("cudaGraphLaunch", "launch", 2 * LAUNCH_US)
    for _ in range(3):
        for one in kernels:
            if not as_graph:
                call("cuLaunchKernelEx", "launch", LAUNCH_US)
            work(one.name, one.kind, one.us_each, host)
        if reads:
            work("device to host", "copy", 0.9, host)
            call("cudaMemcpyAsync", "wait", max(device - host, 0.0) + READ_US)
    if as_graph:
        call("cudaStreamSynchronize", "wait", max(device - host, 0.0))
    return spans, max(host, device)
