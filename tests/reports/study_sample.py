"""A study as it would be recorded: hidden sizes over a wide range, a size that does not fit, a stage that crashed.

The numbers are made up.
"""

from __future__ import annotations

import msgspec

from ladder.results import Results, StageResult, Timing
from ladder.study_data import Point, Published, Study
from reports.study import StudyResults
from tests.reports.sample import replace_stage, unprofiled_results

SIZES = [64, 128, 256, 512, 1024, 2048, 4096, 8192]
STEPS = 1875
NAMES = ("numpy", "torch-eager", "torch-amp", "jax-scan", "naive", "cublas", "bf16-gemm")
# us/step of a small network, and how many sizes of the hidden layers it takes until the products weigh as much.
COSTS = {
    "numpy": (400.0, 60.0), "torch-eager": (900.0, 6000.0), "torch-amp": (90.0, 3000.0), "jax-scan": (37.0, 900.0),
    "naive": (150.0, 300.0), "cublas": (12.0, 500.0), "bf16-gemm": (11.0, 900.0),
}  # fmt: skip


def study_results(sizes: list[int] | None = None) -> StudyResults:
    """Eight sizes, of which the largest was skipped, and at the one before it a stage crashed."""
    sizes = sizes or SIZES
    points = [
        Point(f"hidden-{size}", {"hidden": size}, {"hidden": size, "depth": 3, "batch_size": 32}, "measured")
        for size in sizes
    ]
    runs = {point.name: run_at(point.values["hidden"]) for point in points}
    last, before = points[-1], points[-2]
    del runs[last.name]
    points[-1] = msgspec.structs.replace(last, status="skipped", reason="hidden 8192: no room in 4 GiB of memory")
    runs[before.name] = replace_stage(
        runs[before.name], "naive", status="crashed", reason="out of memory: 9 | 8", timing=None
    )
    return StudyResults(study("hidden", points), runs)


def study(varied: str, points: list[Point]) -> Study:
    """The index of a study over one setting."""
    return Study(
        name="made-up",
        title="How the gap closes as the hidden layers grow",
        question="Where do launches end, and where does arithmetic begin?",
        created="2026-11-20T10:00:00+00:00",
        command="python run_ladder.py study experiments/made-up.toml",
        varied=[varied],
        points=points,
        published=[Published("somebody | else", "an epoch", "750 ms", "H100", "https://example.org/mlp")],
    )


def run_at(size: int, batch: int = 32) -> Results:
    """The run at one size."""
    run = unprofiled_results()
    problem = msgspec.structs.replace(run.problem, hidden=[size] * 3, batch_size=batch)
    stages = [_scaled(stage, size) for stage in run.stages if stage.name in NAMES]
    return msgspec.structs.replace(run, problem=problem, stages=stages)


def _scaled(stage: StageResult, size: int) -> StageResult:
    base, knee = COSTS[stage.name]
    us = base * (1 + (size / knee) ** 2)
    runs = [us * factor * STEPS * 20 / 1e6 for factor in (0.93, 1.0, 1.2)]
    process = msgspec.structs.replace(stage.processes[0], runs_s=runs, gpu_states=[])
    timing = Timing.of([process], epochs=20, steps_per_epoch=STEPS, shortened=False)
    return msgspec.structs.replace(stage, timing=timing, processes=[process])
