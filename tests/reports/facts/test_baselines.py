from __future__ import annotations

import pytest
from msgspec.structs import replace

from ladder.records.profile import Split
from ladder.records.run import Precision, Results, StageResult
from reports.facts.baselines import Lead, lead
from reports.facts.warnings import notices
from tests.reports import sample
from tests.reports.profiles import own_kernels, profile


def stage(run: Results, name: str) -> StageResult:
    return next(stage for stage in run.stages if stage.name == name)


def lead_of(run: Results, name: str) -> Lead:
    found = lead(stage(run, name), run)
    assert found is not None
    return found


def fastest_for(run: Results, name: str) -> str | None:
    """The name of the reference that a row is compared with."""
    found = lead(stage(run, name), run)
    return found.reference.name if found else None


def without(run: Results, name: str) -> Results:
    return sample.replace_stage(run, name, status="skipped", reason="not installed")


@pytest.mark.parametrize(
    ("reference", "rung", "counts"),
    [
        ("float32", "float32", True), ("float32", "tf32", True), ("float32", "float16", True),
        ("tf32", "float32", False), ("tf32", "tf32", True), ("tf32", "bfloat16", True),
        ("bfloat16", "tf32", False), ("bfloat16", "float16", True), ("float16", "bfloat16", True),
        ("float16", "float32", False),
    ],
)  # fmt: skip
def test_float32_is_more_exact_than_tf32_and_tf32_than_the_formats_of_16_bits(
    reference: Precision, rung: Precision, counts: bool
) -> None:
    run = sample.replace_stage(sample.results(), "jax-scan", precision=reference)
    run = without(without(sample.replace_stage(run, "async", precision=rung), "torch-eager"), "torch-amp")
    assert (fastest_for(run, "async") == "jax-scan") == counts


def test_a_gpu_is_not_compared_with_the_cpu_where_a_reference_ran_on_one() -> None:
    run = sample.results()
    cpu = stage(run, "torch-eager-cpu").timing
    run = sample.replace_stage(run, "torch-eager-cpu", timing=stage(run, "cublas").timing)  # a CPU that is faster
    assert cpu is not None
    assert fastest_for(run, "async") == "jax-scan"
    assert fastest_for(run, "numpy") == "torch-eager-cpu"
    # Nor if only a less exact one ran on the GPU.
    assert fastest_for(without(without(run, "jax-scan"), "torch-eager"), "async") is None


def busy(run: Results, name: str, busy_us: float, *, events: bool) -> Results:
    """The run with a profile that saw the GPU busy so long a step, and with or without GPU events."""
    timing = stage(run, name).timing
    assert timing is not None
    timing = replace(timing, gpu_epoch_s=timing.epoch_s.median if events else None)
    shown = profile(Split(busy_us - 1, 1, 0, 0, 20), own_kernels())
    return sample.replace_stage(run, name, timing=timing, profiles=[shown])


def test_a_reference_that_may_wait_in_its_loop_is_compared_on_gpu_time_if_that_is_less() -> None:
    run = sample.results()
    own_us = 0.02 * 0.9 / sample.STEPS * 1e6  # between its events
    found = lead_of(busy(run, "jax-scan", 40.0, events=False), "async")
    assert found.on_gpu_time
    assert found.reference_us == pytest.approx(40.0)
    assert found.ratio.times == pytest.approx(40.0 / own_us)
    assert found.ratio.interval[0] < found.ratio.times < found.ratio.interval[1]
    found = lead_of(busy(run, "jax-scan", 60.0, events=False), "async")  # more than the host's time by far
    assert not found.on_gpu_time
    assert found.ratio.times == pytest.approx(1.25)
    assert not lead_of(busy(run, "jax-scan", 40.0, events=True), "async").on_gpu_time
    unprofiled = sample.replace_stage(busy(run, "jax-scan", 40.0, events=False), "jax-scan", profiles=[])
    assert not lead_of(unprofiled, "async").on_gpu_time
    assert fastest_for(busy(run, "torch-eager", 30.0, events=False), "async") == "torch-eager"


def test_notices_name_references_that_ran_in_fewer_rounds_and_why() -> None:
    run = sample.with_processes(sample.results(), "jax-scan", [53.0, 54.0])  # the others take four times as long
    limited = replace(run.settings, rounds=2, budget_total_s=90.0)
    said = [one.text for one in notices(replace(run, settings=limited)) if "fewer than" in one.text]
    assert said == [
        "numpy and torch-eager-cpu ran in fewer than 2 rounds: the fastest rungs are over 2 times as fast, so that no "
        "further process changes a verdict.",
        "torch-eager and torch-amp ran in fewer than 2 rounds: "
        "another reference of the same precision or a higher one is over 3 times as fast.",
    ]
    assert not [one for one in notices(run) if "fewer than" in one.text]  # each had its own time
