"""What a run tells of energy, and of the time to an accuracy."""

from __future__ import annotations

from msgspec.structs import replace

from ladder.records.run import Energy, LossPoint, Results
from reports.facts.energy import saving
from reports.figures.energy_figure import headline
from tests.reports import sample

DRAWN = Energy(joules=0.4, watts=300.0, idle_w=120.0, seconds=5.1)
TARGET = 0.9


def measured() -> Results:
    """A run whose `async` and `cublas` were measured, and reach 90% after the third epoch and never."""
    run = sample.results()
    settings = replace(run.settings, energy=True, target_accuracy=TARGET)
    for name, best in (("async", 0.93), ("cublas", 0.89)):
        stage = next(stage for stage in run.stages if stage.name == name)
        first, *others = stage.processes
        assert stage.metrics is not None
        points = [LossPoint(epoch, 0.3, best - 0.1 / epoch) for epoch in range(1, 6)]
        run = sample.replace_stage(
            run,
            name,
            processes=[replace(first, energy=DRAWN), *others],
            metrics=replace(stage.metrics, validation=points),
        )
    return replace(run, settings=settings)


def test_a_rung_s_energy_is_told_beside_the_most_frugal_reference_s() -> None:
    run = measured()
    assert saving(run) == ""
    for name, spent in (("jax-scan", 1.2), ("torch-eager", 0.9)):
        (first,) = next(stage for stage in run.stages if stage.name == name).processes
        run = sample.replace_stage(run, name, processes=[replace(first, energy=replace(DRAWN, joules=spent))])
    run = sample.replace_stage(run, "torch-eager", precision="bfloat16")  # less exact, and so no reference of `async`
    said = (
        "`async` takes 0.4 J per epoch, 40% of which the GPU draws at rest too; "
        "`jax-scan`, the most frugal reference at least as exact, takes 3.00 times as much"
    )
    assert saving(run) == said
    assert headline(run) == said.replace("`", "")
