"""A study as it would be recorded: hidden sizes over a wide range, a size that does not fit, a stage that crashed.

The numbers are invented.
"""

from __future__ import annotations

import math

from msgspec.structs import replace

from ladder.records.run import Curve, CurvePoint, Results, StageResult, Timing
from ladder.records.study import Point, Published, Study
from reports.facts.study_points import StudyResults
from tests.reports.sample import replace_stage, unprofiled_results

SIZES = [64, 128, 256, 512, 1024, 2048, 4096, 8192]
STEPS = 1875
NAMES = ("numpy", "torch-eager", "torch-amp", "jax-scan", "naive", "cublas", "bf16-gemm")
# us/step of a small network, and the hidden size at which the products take as long again.
COSTS = {
    "numpy": (400.0, 60.0), "torch-eager": (900.0, 6000.0), "torch-amp": (90.0, 3000.0), "jax-scan": (37.0, 900.0),
    "naive": (150.0, 300.0), "cublas": (12.0, 500.0), "bf16-gemm": (11.0, 900.0),
}  # fmt: skip


def study_results(sizes: list[int] | None = None) -> StudyResults:
    """Eight sizes; the largest was skipped, and a stage crashed at the second largest."""
    sizes = sizes or SIZES
    points = [
        Point(f"hidden-{size}", {"hidden": size}, {"hidden": size, "depth": 3, "batch_size": 32}, "measured")
        for size in sizes
    ]
    runs = {point.name: run_at(point.values["hidden"]) for point in points}
    last, before = points[-1], points[-2]
    del runs[last.name]
    points[-1] = replace(last, status="skipped", reason="hidden 8192: no room in 4 GiB of memory")
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
        published=[Published("another | author", "an epoch", "750 ms", "H100", "https://example.org/mlp")],
    )


def run_at(size: int, batch: int = 32) -> Results:
    """The run at one size."""
    run = unprofiled_results()
    problem = replace(run.problem, hidden=[size] * 3, batch_size=batch)
    stages = [_scaled(stage, size) for stage in run.stages if stage.name in NAMES]
    return replace(run, problem=problem, stages=stages)


def _scaled(stage: StageResult, size: int) -> StageResult:
    base, knee = COSTS[stage.name]
    us = base * (1 + (size / knee) ** 2)
    runs = [us * factor * STEPS * 20 / 1e6 for factor in (0.93, 1.0, 1.2)]
    process = replace(stage.processes[0], runs_s=runs, gpu_states=[])
    timing = Timing.of([process], epochs=20, steps_per_epoch=STEPS, shortened=False)
    return replace(stage, timing=timing, processes=[process])


def curve_results(seeds: int = 3, epochs: int = 3) -> StudyResults:
    """Two networks with several seeds and curves of every stage; bfloat16 stages are further from the oracle."""
    points = [
        Point(f"hidden-{size}.seed-{seed}", {"hidden": size, "seed": seed}, {}, "measured")
        for size in (64, 256)
        for seed in range(seeds)
    ]
    runs = {point.name: _with_curves(run_at(point.values["hidden"]), point.values["seed"], epochs) for point in points}
    return StudyResults(replace(study("hidden", points), varied=["hidden", "seed"]), runs)


def _with_curves(run: Results, seed: int, epochs: int) -> Results:
    assert run.oracle is not None
    steps = run.problem.train_images // run.problem.batch_size
    far = {stage.name: 1e-3 if "bf16" in stage.name else 1e-7 * index for index, stage in enumerate(run.stages)}
    stages = [replace(stage, curve=_curve(steps, epochs, seed, far[stage.name])) for stage in run.stages]
    oracle = replace(run.oracle, curve=_curve(steps, epochs, seed, 0.0))
    return replace(run, stages=stages, oracle=oracle)


def _curve(steps: int, epochs: int, seed: int, off: float) -> Curve:
    def seen(step: int) -> CurvePoint:
        loss = 0.2 + 2.1 / (1 + step / 60) + 0.03 * seed / (1 + step / 100)
        return CurvePoint(step, loss * (1 + off * math.sin(step)), 1 - loss / 4)

    ends = [(epoch + 1) * steps for epoch in range(epochs)]
    return Curve([seen(step) for step in range(10, epochs * steps + 1, 40)], [seen(step) for step in ends])
