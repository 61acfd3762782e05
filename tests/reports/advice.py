"""Advice on recorded and invented profiles: its exact text is in tests/golden/advice.txt."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

from msgspec.structs import replace

from ladder.records.profile import CallUse, CopyUse, KernelUse, Profile, Split
from ladder.records.run import Results, load
from reports.facts.bottleneck import next_step
from reports.facts.time_breakdown import Profiled, profiled
from tests.reports import sample
from tests.reports.profiles import kernel, own_kernels, profile

RECORDED = Path(__file__).parents[2] / "results" / "reference" / "h200"
STAGE = next(stage for stage in sample.results().stages if stage.name == "cublas")
BUSY = Split(60.0, 1.0, 2.0, 3.0, 4.0)
TOLD = {
    "logistic": "persistent-cluster fused-update skinny-gemm",
    "hidden-128-128-128": "persistent-cluster cluster-fp16",
    "hidden-256": "persistent-grid last-layer dependent-launch cuda-graph torch-graph async sparse-metrics torch-eager "
    "torch-compile torch-dataloader exact-u8",
    "hidden-4096-4096-4096": "persistent-grid cuda-graph streamed",
    "studies/hidden-size/hidden-4096": "jax-scan",
    "studies/allocators/hidden-2048": "alloc-cudamalloc alloc-arena",
    "studies/data-path/batch-size-128.hidden-256": "pinned",
    "studies/data-path/batch-size-2048.hidden-256": "pageable",
    "studies/data-path/batch-size-2048.hidden-4096": "sparse-metrics",
}
"""Recorded runs, and their stages of which each is told something that is told of no other."""


@cache
def recorded(name: str) -> Results:
    return load(RECORDED / name)


def advice(seen: Profile) -> str:
    """The advice on a profile, as if it were of cublas in the sample."""
    return str(next_step(sample.results(), Profiled(STAGE, seen, seen.plain_step_us)))


def of_kernel(slow: KernelUse) -> str:
    """The advice on a step of which this kernel takes most."""
    return advice(profile(BUSY, [kernel("quick", "layer", 1.0), slow]))


def advice_text() -> str:
    """Every case in a paragraph."""
    return "\n\n".join(f"{case}\n{text}" for case, text in (*_recorded(), *_invented())) + "\n"


def _recorded() -> Iterator[tuple[str, str]]:
    for run, names in TOLD.items():
        for name in names.split():
            one = profiled(next(stage for stage in recorded(run).stages if stage.name == name))
            assert one is not None
            yield f"{run}, {name}", str(next_step(recorded(run), one))


def _invented() -> Iterator[tuple[str, str]]:
    slow = replace(kernel("slow", "gemm", 40.0, blocks=256), occupancy=0.5, bytes=4_000_000)
    changes: tuple[dict[str, object], ...] = (
        {"occupancy": 0.125, "blocks": 4096},
        {"occupancy": 0.125, "blocks": 128},
        {"kind": "layer"},
        {"bytes": 120_000_000},
        {"bytes": None},
        {"bytes": None, "kind": "update"},
        {"bytes": None, "kind": "fused"},
        {"bytes": None, "name": "nvjet_sm90_tst"},
    )
    for changed in changes:
        yield f"a kernel with {changed}", of_kernel(replace(slow, **changed))
    launching = Split(10.0, 0.0, 1.0, 30.0, 2.0)
    yield "launching", advice(profile(launching, own_kernels()))
    yield "launching a graph", advice(profile(launching, own_kernels(), as_graph=True))
    epoch = profile(launching, [kernel("epoch", "fused", 10.0)], kernels_per_step=0.002)
    yield "launching a kernel of many steps", advice(epoch)
    seen = profile(Split(10.0, 0.0, 1.0, 60.0, 2.0), own_kernels())
    yield "launching beside other code", advice(seen)
    allocations = {"cudaMalloc": 468.0, "cudaFree": 468.0}
    calls = [*seen.calls, CallUse("cudaMalloc", 468.0, 9.0), CallUse("cudaFree", 468.0, 5.0)]
    yield "allocating", advice(replace(seen, calls=calls, allocations_per_epoch=allocations))
    rarely = replace(seen, calls=calls, allocations_per_epoch={"cudaMalloc": 4.0})
    yield "allocating now and then", advice(rarely)
    copies = [CopyUse("host to device", 468.0, 188e6, 9.9)]
    calls = [*seen.calls, CallUse("cudaMemcpyAsync", 468.0, 20.0)]
    yield "copying each batch", advice(replace(seen, calls=calls, copies=copies))
    waiting = Split(10.0, 0.0, 1.0, 2.0, 30.0)
    yield "waiting for results", advice(profile(waiting, own_kernels(), reads=True))
    yield "waiting for an epoch", advice(profile(waiting, own_kernels()))
    yield "gaps between queued kernels", advice(profile(Split(10.0, 0.0, 24.0, 2.0, 1.0), own_kernels()))
    seen = profile(Split(1.0, 20.0, 2.0, 2.0, 1.0), own_kernels())
    fill, copy = CopyUse("fill", 468.0, 4.0, 0.1), CopyUse("host to device", 468.0, 188e6, 19.9)
    yield "copies", advice(replace(seen, copies=[fill, copy]))
    yield "fills", advice(replace(seen, copies=[fill]))
