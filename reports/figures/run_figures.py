"""The list of a run's figures, each as SVG text."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ladder.records.run import Results
from reports.facts.ablations import FIGURES, ablation
from reports.facts.profiles import timeline_name
from reports.facts.time_breakdown import chain
from reports.facts.times import step_us
from reports.figures import energy_figure, ladder, roofline, waterfall
from reports.figures.ablation_figures import ablation_figure
from reports.figures.canvas import Canvas
from reports.figures.loss_curves import curves, has_curves
from reports.figures.loss_distance import loss_distance, loss_distances
from reports.figures.timeline_figure import on_one_clock, shown, timelines, with_timeline

LADDER = "ladder.svg"
TITLES = {
    LADDER: "Microseconds a training step of each rung, with an arrow from the rung that it climbs from",
    "loss_distance.svg": "Distance of each loss curve from the float64 oracle's, and its limit",
    "curves.svg": "Training loss within epochs, validation loss and accuracy, with the oracle's",
    "timelines.svg": "Three steps of every stage on one time scale",
    "waterfall.svg": "The way to the fastest rung: what each rung on it changed, part by part",
    "roofline.svg": "The rate of each rung below the measured limits of the GPU, by its traffic",
    "energy.svg": "Joules an epoch of each stage, and what the idle GPU draws in the same time",
    "memory.svg": "The parts of a step for each way to allocate its tensors",
    "data_path.svg": "The parts of a step for each way to bring its batch",
}


def drawings(results: Results) -> dict[str, Callable[[], Canvas]]:
    """The function that draws each figure, by file name."""
    figures: dict[str, Callable[[], Canvas]] = {}
    if any(step_us(stage) is not None for stage in results.stages):
        figures[LADDER] = partial(ladder.drawn, results)
    if loss_distances(results):
        figures["loss_distance.svg"] = partial(loss_distance, results)
    if has_curves(results):
        figures["curves.svg"] = partial(curves, [results])
    if way := chain(results):
        figures["waterfall.svg"] = partial(waterfall.drawn, results, way)
    if roofline.points(results):
        figures["roofline.svg"] = partial(roofline.drawn, results)
    if energy_figure.energies(results):
        figures["energy.svg"] = partial(energy_figure.drawn, results)
    ablations = {group: name for group, name in FIGURES.items() if ablation(results, group)}
    figures |= {name: partial(ablation_figure, results, group) for group, name in ablations.items()}
    drawn = with_timeline(results)
    if drawn:
        figures["timelines.svg"] = partial(timelines, results)
    return figures | {timeline_name(stage): partial(on_one_clock, [shown(stage)], results) for stage in drawn}
