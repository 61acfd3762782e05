"""The view of the floor: how far each rung is from the least time of its own design."""

from __future__ import annotations

from ladder.records.run import Results
from reports.facts import numbers
from reports.facts.provenance import gpu_name
from reports.facts.run_table import FLOOR, name_of
from reports.figures import floor_figure as floor
from reports.figures import roofline
from reports.writers.html import drawing, template

HOW_FLOORS_ON_CPU_ARE_MADE = """\
*Floor of this design* uses the best sample of each primitive: Python's calls and the barriers of the threads, plus the
longest of three times that overlap. *Arithmetic*: the matrix products at the rate of multiply-adds or of BLAS,
whichever is higher, on the threads that the rung uses. *Images*: the batch once, from the level of the caches that
holds an epoch of images, or from memory. *Weights and images again*: each pass over them, through the level that holds
a thread's share. *Longest part*: where most of the floor lies. *Cheat limit*: no honest program is faster."""
HOW_BOUNDS_ARE_MADE = """\
Two bounds use the best sample of each primitive. *Floor of this design*: the longer of the host's time in launches and
the GPU's time in kernels, plus the host's waits. A kernel takes at least the time of the next node of a graph, of its
bytes from L2 or memory, and of its arithmetic, by the unit and on the multiprocessors (SMs) that the rung uses. A
float32 split in parts takes several products of the unit. A kernel that runs whole steps also takes its successive
exchanges: hops of a cluster or barriers of the grid. References have no such floor, because their fused operations are
not counted. *Cheat limit*: reading the batch's pixels once or the arithmetic at the GPU's highest rate, whichever is
longer, plus one exchange between multiprocessors, or all of it on one multiprocessor without any. A third is subtracted
as a margin. A stage that is faster than the cheat limit fails."""


def floor_view(results: Results) -> str:
    """The view as HTML; a sentence where the GPU's limits were not measured."""
    distances = floor.floor_distances(results)
    on_cpu = all(distance.stage.device == "cpu" for distance in distances)
    return template(
        "floor.html",
        pictures=[drawing(floor.drawn(results), "wide"), drawing(floor.drawn(results, floor.PHONE), "narrow")]
        if distances
        else [],
        roofline=drawing(roofline.drawn(results)) if roofline.points(results) else None,
        rows=[_floor_cells(distance, on_cpu=on_cpu) for distance in distances],
        on_cpu=on_cpu,
        how_to_read=FLOOR,
        how_made=" ".join((HOW_FLOORS_ON_CPU_ARE_MADE if on_cpu else HOW_BOUNDS_ARE_MADE).split()),
        without=[(one.name, one.bounds.no_floor) for one in results.stages if one.bounds and one.bounds.no_floor],
        why_not=(
            "This run did not measure its GPU's limits, so no rung has a floor; its notices say why."
            if gpu_name(results)
            else "This run had no GPU and did not measure its CPU's limits, so no rung has a floor."
        ),
    )


def _floor_cells(distance: floor.FloorDistance, *, on_cpu: bool) -> dict[str, object]:
    """A rung's line of the table: what its floor is made of, in us/step; without exchanges if all are on the CPU."""
    design = distance.stage.bounds.design if distance.stage.bounds else None
    exchanging = [] if on_cpu or design is None else [design.exchanging_us]
    parts = [design.launching_us, design.kernels_us, *exchanging, design.waiting_us] if design is not None else []
    return {
        "name": distance.stage.name,
        "shown": name_of(distance.stage),
        "arithmetic": design.arithmetic if design is not None else "",
        "bound_by": design.bound_by if design is not None else "",
        "cells": [
            numbers.ratio(distance.times),
            *(numbers.microseconds(us) for us in (distance.step_us, distance.floor_us, *parts)),
        ],
    }
