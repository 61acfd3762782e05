"""The reference that a stage is compared with: the fastest one that is at least as exact, on the same kind of device.

A float32 reference counts for a bfloat16 rung, as its user gains exactness and loses nothing. A bfloat16 reference does
not count for a float32 rung. A stage on a GPU is compared with a CPU only if no candidate ran on a GPU, and one that
takes one GPU never with one that takes several.

Some references wait for the GPU in their own loop, as `jax-scan` did in every epoch. They record no GPU events. Where a
profile knows how long the GPU was busy, their lead is taken on the GPU's time as well, and the smaller one is shown.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ladder.records.exactness import CLASSES, is_as_exact, precision_class
from ladder.records.run import Process, Results, StageResult
from reports.facts.launch_regimes import assumed_spread
from reports.facts.ratios import Ratio, Times, ratio_of
from reports.facts.times import median_us, step_times_us, step_us


def references(results: Results) -> list[StageResult]:
    """Every stage that is not a rung."""
    return [stage for stage in results.stages if stage.group == "reference"]


@dataclass(frozen=True)
class Lead:
    """How many times as fast as its fastest reference a stage is."""

    stage: StageResult
    reference: StageResult
    ratio: Ratio
    on_gpu_time: bool  # the reference waits in its own loop, so the GPU's times are compared

    @property
    def precision(self) -> str:
        """The stage's class of precision."""
        return precision_class(self.stage)

    @property
    def text(self) -> str:
        """The lead with its interval: `8.58x (8.27-8.90), GPU time`."""
        return f"{self.ratio.text}{', GPU time' if self.on_gpu_time else ''}"

    @property
    def reference_us(self) -> float:
        """The reference's microseconds per step on the compared clock."""
        return (gpu_times if self.on_gpu_time else host_times)(self.reference).median_us

    @property
    def own_us(self) -> float:
        """The stage's on the same clock."""
        return self.reference_us / self.ratio.times


def lead(stage: StageResult, results: Results) -> Lead | None:
    """The stage's lead over the fastest reference that counts for it; None if there is none, or no time.

    This is the one place where a lead is computed. A reference is its own fastest one if no other is faster.
    """
    if step_us(stage) is None:
        return None
    leads = [best_lead for reference in rivals(stage, references(results)) for best_lead in _leads(stage, reference)]
    return min(leads, key=lambda best_lead: best_lead.ratio.times, default=None)


def rivals(stage: StageResult, candidates: Iterable[StageResult]) -> list[StageResult]:
    """The timed candidates that count for a stage: at least as exact, and on its kind of device, on no more GPUs."""
    timed = [rival for rival in candidates if step_us(rival) is not None and rival.takes_gpus <= stage.takes_gpus]
    on_gpu = stage.device == "gpu" and any(rival.device == "gpu" for rival in timed)
    return [rival for rival in timed if (rival.device == "gpu") == on_gpu and is_as_exact(rival, stage)]


def _leads(stage: StageResult, reference: StageResult) -> Iterator[Lead]:
    """The lead on the host's clock and, for a reference that waits in its loop, on the GPU's."""
    yield Lead(stage, reference, ratio_of(host_times(reference), host_times(stage)), on_gpu_time=False)
    if has_own_fence(reference) and (busy := gpu_times(reference)).values_us:
        own = gpu_times(stage)
        yield Lead(stage, reference, ratio_of(busy, own if own.values_us else host_times(stage)), on_gpu_time=True)


def has_own_fence(stage: StageResult) -> bool:
    """Whether a stage on the GPU exposes no stream for events, so that its loop may wait without being seen."""
    return stage.device == "gpu" and stage.timing is not None and stage.timing.gpu_epoch_s is None


def winners(results: Results) -> list[Lead]:
    """The lead of the fastest rung of each class of precision that has a timed rung and a reference."""
    rungs = [stage for stage in results.stages if stage.group != "reference" and step_us(stage) is not None]
    leads = []
    for precision in dict.fromkeys(CLASSES.values()):
        best = fastest([rung for rung in rungs if precision_class(rung) == precision])
        if best is not None and (best_lead := lead(best, results)) is not None:
            leads.append(best_lead)
    return leads


def overall_winner(results: Results) -> Lead | None:
    """The lead of the fastest rung of any precision."""
    best = fastest(stage for stage in results.stages if stage.group != "reference")
    return lead(best, results) if best is not None else None


def fastest(stages: Iterable[StageResult]) -> StageResult | None:
    """The fastest timed stage; if any ran on a GPU, the fastest there."""
    timed = [(us, stage) for stage in stages if (us := median_us(stage)) is not None]
    return min(timed, key=lambda pair: (pair[1].device != "gpu", pair[0]))[1] if timed else None


def ratio(base: StageResult | None, own: StageResult) -> Ratio | None:
    """How many times as fast as the base a stage is; None if either has no time."""
    if base is None or step_us(base) is None or step_us(own) is None:
        return None
    return ratio_of(host_times(base), host_times(own))


def host_times(stage: StageResult) -> Times:
    """A passed stage's microseconds per step on the host's clock."""
    known = step_us(stage)
    assert known is not None
    assert stage.timing is not None
    return Times(
        median_us=known.median,
        values_us=step_times_us(stage),
        runs_us=[run / stage.timing.epochs / _step(stage) for run in stage.timing.runs_s],
        spread=assumed_spread(stage),
    )


def gpu_times(stage: StageResult) -> Times:
    """A passed stage's microseconds per step on the GPU: between events, or how long a profile saw it busy.

    Without either, there are no values.
    """
    timing, profile = stage.timing, stage.profile
    assert timing is not None
    if timing.gpu_epoch_s is not None:
        values = [_event_us(stage, process) for process in stage.processes if process.gpu_runs_s]
        return Times(timing.gpu_epoch_s / _step(stage), values or [timing.gpu_epoch_s / _step(stage)])
    if profile is None or profile.split.work_us <= 0:
        return Times(0.0, [])
    values = [process.split.work_us for process in stage.processes if process.split is not None]
    return Times(profile.split.work_us, values or [profile.split.work_us])


def _event_us(stage: StageResult, process: Process) -> float:
    assert stage.timing is not None
    return statistics.median(process.gpu_runs_s or []) / stage.timing.epochs / _step(stage)


def _step(stage: StageResult) -> float:
    """The steps of an epoch in millions: seconds an epoch by this are microseconds per step."""
    assert stage.timing is not None
    return stage.timing.steps_per_epoch / 1e6


def sm_mhz(stage: StageResult) -> float | None:
    """The median SM clock in MHz after the timed runs; None without a GPU, or if NVML reported no clock."""
    if stage.status != "passed" or stage.device != "gpu":
        return None
    states = [state for process in stage.processes for state in process.gpu_states[-len(process.runs_s) :]]
    clocks = [state.sm_mhz for state in states if state.sm_mhz is not None]
    return statistics.median(clocks) if clocks else None
