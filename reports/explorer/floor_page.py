"""The view of the floor: how far each rung is from the least time of its own design."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from markupsafe import Markup

from ladder.records.run import Results
from reports.facts import numbers
from reports.facts.provenance import gpu_name
from reports.facts.run_table import FLOOR, name_of
from reports.figures import floor_figure as floor
from reports.figures import roofline
from reports.screens.blocks import Block, ColumnOf, Figure, Folded, Heading, Sentences, Table, number, table_of
from reports.writers.page import in_html

OF_A_FLOOR = {True: "calls from Python, kernels and barriers", False: "launches, kernels, exchanges and waits"}
WITHOUT_ON_GPU = "This run did not measure its GPU's limits, so no rung has a floor; its notices say why."
WITHOUT = "This run had no GPU, and only rungs on a GPU have a floor."
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


def floor_view(results: Results) -> Markup:
    """The view as HTML; a sentence where the device's limits were not measured."""
    title, distances = Heading("How far from the floor", 1), floor.floor_distances(results)
    if not distances:
        return in_html([title, Sentences([WITHOUT_ON_GPU if gpu_name(results) else WITHOUT], "quiet")])
    on_cpu = all(distance.stage.device == "cpu" for distance in distances)
    how_made = " ".join((HOW_FLOORS_ON_CPU_ARE_MADE if on_cpu else HOW_BOUNDS_ARE_MADE).split())
    under_roof: Block = Figure("", "", lambda _: roofline.drawn(results))
    without = [
        f"`{one.name}` has no floor: {one.bounds.no_floor}"
        for one in results.stages
        if one.bounds and one.bounds.no_floor
    ]
    blocks: list[Block] = [
        title,
        Sentences([f"The floor of a design is the least time that its own {OF_A_FLOOR[on_cpu]} take here, from the "
                   "limits that this run measured."], "quiet"),
        Figure("", "", partial(floor.drawn, results)),
        *([Heading("Under the roof"), under_roof] if roofline.points(results) else []),
        Heading("What each floor is made of"),
        _table(distances, on_cpu=on_cpu),
        Sentences([f"Microseconds per step. {FLOOR}", *without], "quiet"),
        Folded("How floors and cheat limits are made", [Sentences([how_made], "quiet")]),
    ]  # fmt: skip
    return in_html(blocks, {stage.name for stage in results.stages})


def _table(distances: Sequence[floor.FloorDistance], *, on_cpu: bool) -> Table:
    """What each rung's floor is made of, in us/step."""
    us = numbers.microseconds
    return table_of(distances, [
        ColumnOf("Rung", lambda one: f"`{one.stage.name}`{name_of(one.stage).removeprefix(one.stage.name)}"),
        number("x floor", lambda one: numbers.ratio(one.times)),
        number("Timed", lambda one: us(one.step_us)),
        number("Floor", lambda one: us(one.floor_us)),
        number("Calls" if on_cpu else "Launching", lambda one: us(one.design.launching_us)),
        number("Kernels", lambda one: us(one.design.kernels_us)),
        number("Exchanging", lambda one: "" if on_cpu else us(one.design.exchanging_us)),
        number("Barriers" if on_cpu else "Waiting", lambda one: us(one.design.waiting_us)),
        ColumnOf("Multiplies by", lambda one: one.design.arithmetic),
        ColumnOf("Longest part", lambda one: one.design.bound_by),
    ])  # fmt: skip
