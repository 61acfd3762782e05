"""Runs to compare, with known times of their processes."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from msgspec.structs import replace

from ladder.records.run import Group, Process, Results, StageResult, Timing
from tests.reports import sample

EPOCHS, STEPS = 2, 100
STARTS = itertools.count()


def times(step_us: float, *, processes: int = 12, scatter: float = 0.002) -> list[float]:
    """The step's time in each process, evenly spread over `scatter` on both sides."""
    middle = (processes - 1) / 2
    return [step_us * (1 + scatter * (index - middle) / max(middle, 1)) for index in range(processes)]


def stage(name: str, step_us: Sequence[float], *, group: Group = "ladder", below: str | None = None) -> StageResult:
    """A passed stage whose processes made one run each, with these times of a step."""
    processes = [Process(round_, 0.1, [], [us * 1e-6 * EPOCHS * STEPS], None, []) for round_, us in enumerate(step_us)]
    timing = Timing.of(processes, epochs=EPOCHS, steps_per_epoch=STEPS, shortened=False)
    known = next(one for one in sample.results().stages if one.name == "naive")
    return replace(
        known, name=name, group=group, below=below, timing=timing, processes=processes, profiles=[], bounds=None
    )


def run(*stages: StageResult, gpu: str = "NVIDIA H200") -> Results:
    """A run of these stages, started when no other one was."""
    results = sample.results()
    minutes, seconds = divmod(next(STARTS), 60)
    environment = {**results.environment, "gpu": {"name": gpu, "driver": "580.65"}}
    created = f"2026-11-20T{10 + minutes // 60}:{minutes % 60:02}:{seconds:02}Z"
    return replace(results, created=created, stages=list(stages), environment=environment)


def before() -> Results:
    """The base of a comparison."""
    return run(
        stage("naive", times(80.0)),
        stage("async", times(60.0)),
        stage("cublas", times(50.0)),
        stage("cuda-graph", times(20.0)),
        stage("fused-head", times(18.0, processes=2)),
        stage("gone", times(17.0)),
        stage("numpy", times(100.0), group="reference"),
    )


def after() -> Results:
    """The new run: one stage each is slower, faster, the same, broken, measured too little, new and gone."""
    results = run(
        stage("naive", times(80.0 * 1.03)),
        stage("async", times(60.0 * 0.9)),
        stage("cublas", times(50.0)),
        stage("cuda-graph", times(20.0)),
        stage("fused-head", times(18.0 * 1.05, processes=2)),
        stage("new", times(1.0)),
        stage("numpy", times(100.0, scatter=0.2), group="reference"),
    )
    results = sample.replace_stage(results, "cuda-graph", status="crashed", reason="killed by SIGSEGV", timing=None)
    environment = {
        **results.environment,
        "libraries": {"numpy": "2.4.0", "torch": "2.11.0"},
        "code": {"git_commit": "fedcba9876543210fedcba9876543210fedcba98", "uncommitted_changes": True},
    }
    return replace(results, environment=environment)


def machines() -> list[tuple[str, Results]]:
    """Three machines; on the last one, the higher of two rungs is slower."""
    other = run(stage("naive", times(100.0)), stage("async", times(70.0)), stage("cublas", times(75.0)), gpu="NVIDIA A")
    few = [stage("naive", times(81.0, processes=2)), stage("async", times(60.0, processes=2))]
    return [("runs/h200", before()), ("runs/again", run(*few, gpu="NVIDIA B")), ("runs/a | b", other)]
