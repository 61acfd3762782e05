"""The list of a run's figures, each as SVG text."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ladder.records.run import Results
from reports.facts.ablations import FIGURES, ablation
from reports.facts.profiles import timeline_name
from reports.facts.run_table import rows
from reports.facts.time_breakdown import chain
from reports.figures.ablation_figures import ablation_figure
from reports.figures.energy import energies, energy_figure
from reports.figures.ladder import ladder
from reports.figures.loss_curves import curves, has_curves
from reports.figures.loss_distance import loss_distance, loss_distances
from reports.figures.roofline import points, roofline
from reports.figures.timeline_figure import stage_timeline, timelines, with_timeline
from reports.figures.waterfall import waterfall


def figures(results: Results) -> dict[str, str]:
    """Every figure that this run has numbers for, as SVG text by file name; empty if no stage passed."""
    return {name: draw() for name, draw in drawings(results).items()}


def drawings(results: Results) -> dict[str, Callable[[], str]]:
    """The function that draws each figure, by file name."""
    found: dict[str, Callable[[], str]] = {}
    if any(row.epoch_s is not None for row in rows(results)):
        found["ladder.svg"] = partial(ladder, results)
    if loss_distances(results):
        found["loss_distance.svg"] = partial(loss_distance, results)
    if has_curves(results):
        found["curves.svg"] = lambda: curves([results]).svg()
    if chain(results):
        found["waterfall.svg"] = partial(waterfall, results)
    if points(results):
        found["roofline.svg"] = partial(roofline, results)
    if energies(results):
        found["energy.svg"] = partial(energy_figure, results)
    ablations = {group: name for group, name in FIGURES.items() if ablation(results, group)}
    found |= {name: partial(ablation_figure, results, group) for group, name in ablations.items()}
    drawn = with_timeline(results)
    if drawn:
        found["timelines.svg"] = partial(timelines, results)
    return found | {timeline_name(stage): partial(stage_timeline, stage, results) for stage in drawn}
