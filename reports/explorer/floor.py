"""The view of the floor: how far each rung is from the least time of its own design."""

from __future__ import annotations

from ladder.records.run import Results
from reports.explorer.html import drawing, template
from reports.facts import numbers
from reports.facts.provenance import gpu_name
from reports.facts.summary import FLOOR, name_of
from reports.figures import floor, roofline


def floor_view(results: Results) -> str:
    """The view as HTML; a sentence where the GPU's limits were not measured."""
    found = floor.floor_distances(results)
    on_cpu = all(one.stage.device == "cpu" for one in found)
    return template(
        "floor.html",
        pictures=[drawing(floor.drawn(results), "wide"), drawing(floor.drawn(results, floor.PHONE), "narrow")]
        if found
        else [],
        roofline=drawing(roofline.drawn(results)) if roofline.points(results) else None,
        rows=[_row(one, on_cpu=on_cpu) for one in found],
        on_cpu=on_cpu,
        how_to_read=FLOOR,
        why_not=(
            "This run did not measure its GPU's limits, so no rung has a floor; its notices say why."
            if gpu_name(results)
            else "This run had no GPU and did not measure its CPU's limits, so no rung has a floor."
        ),
    )


def _row(one: floor.Distance, *, on_cpu: bool) -> dict[str, object]:
    """A rung's line of the table: what its floor is made of, in us/step; without exchanges if all are on the CPU."""
    design = one.stage.bounds.design if one.stage.bounds else None
    exchanging = [] if on_cpu or design is None else [design.exchanging_us]
    parts = [design.launching_us, design.kernels_us, *exchanging, design.waiting_us] if design is not None else []
    return {
        "name": one.stage.name,
        "shown": name_of(one.stage),
        "arithmetic": design.arithmetic if design is not None else "",
        "bound_by": design.bound_by if design is not None else "",
        "cells": [
            numbers.ratio(one.times),
            *(numbers.microseconds(us) for us in (one.step_us, one.floor_us, *parts)),
        ],
    }
