"""What two GPUs gain over one, where the batch stays and where each GPU's share stays."""

from __future__ import annotations

from msgspec.structs import replace

from ladder.records.run import Group, Process, Results, StageResult, Timing
from ladder.records.study import Point
from reports.facts.scaling import scalings
from reports.facts.study_points import StudyResults
from tests.reports.study_sample import STEPS, run_at, study

TOOK_US = {  # by batch size
    "naive": {32: 100.0, 64: 160.0, 96: 210.0},
    "cublas": {32: 40.0, 64: 80.0, 96: 70.0},
    "ddp": {32: 125.0, 64: 80.0, 96: 140.0},
    "ddp-again": {32: 125.0, 64: 100.0},
    "torch-ddp": {64: 160.0},
}
DEVICES = {"ddp": "naive", "ddp-again": "ddp", "torch-ddp": None}
GROUPS: dict[str, Group] = {"ddp": "devices", "ddp-again": "devices", "torch-ddp": "reference"}


def timed(stage: StageResult, us: float) -> StageResult:
    process: Process = replace(stage.processes[0], runs_s=[us * STEPS * 20 / 1e6], gpu_states=[])
    timing = Timing.of([process], epochs=20, steps_per_epoch=STEPS, shortened=False)
    return replace(stage, timing=timing, processes=[process])


def run_of(batch: int) -> Results:
    run = run_at(64, batch)
    known = {stage.name: stage for stage in run.stages}
    several = [
        replace(known["naive"], name=name, group=GROUPS[name], below=below, precision="float32", takes_gpus=True)
        for name, below in DEVICES.items()
    ]
    stages = [known["naive"], known["cublas"], *several]
    timings = [timed(one, TOOK_US[one.name][batch]) for one in stages if batch in TOOK_US[one.name]]
    return replace(run, problem=replace(run.problem, gpus=2), stages=timings)


def results() -> StudyResults:
    points = [Point(f"batch-{size}", {"batch_size": size}, {}, "measured") for size in (32, 64, 96)]
    return StudyResults(study("batch_size", points), {f"batch-{size}": run_of(size) for size in (32, 64, 96)})


def rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 9)


def test_efficiency_is_a_share_of_all_gpus() -> None:
    found = {(one.stage.name, one.point.values["batch_size"]): one for one in scalings(results())}
    gains = {at: (rounded(of.strong), rounded(of.weak), of.best.name, round(of.best_us)) for at, of in found.items()}
    assert gains == {
        ("ddp", 32): (0.4, None, "cublas", 40),
        ("ddp", 64): (1.0, 1.25, "cublas", 80),
        ("ddp", 96): (0.75, None, "cublas", 70),
        ("ddp-again", 32): (0.4, None, "cublas", 40),
        ("ddp-again", 64): (0.8, 1.0, "cublas", 80),
        ("torch-ddp", 64): (None, None, "cublas", 80),
    }
