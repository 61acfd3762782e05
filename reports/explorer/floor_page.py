"""The view of the floor: how far each rung is from the least time of its own design."""

from __future__ import annotations

from markupsafe import Markup

from ladder.records.limits_record import DesignFloor
from ladder.records.run import Results
from reports.facts import numbers
from reports.facts.provenance import gpu_name
from reports.facts.run_table import FLOOR, name_of
from reports.facts.stage_facts import StageFacts, all_stage_facts
from reports.figures import roofline
from reports.screens.blocks import Block, ColumnOf, Figure, Folded, Heading, Sentences, Table, number, table_of
from reports.writers.page import in_html

WITHOUT_ON_GPU = "This run did not measure its GPU's limits, so no rung has a floor; its notices say why."
WITHOUT = "This run had no GPU, and only rungs on a GPU have a floor."
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
    title, rungs = Heading("How far from the floor", 1), with_floor(results)
    if not rungs:
        return in_html([title, Sentences([WITHOUT_ON_GPU if gpu_name(results) else WITHOUT], "quiet")])
    under_roof: Block = Figure("", "", lambda _: roofline.drawn(results))
    blocks: list[Block] = [
        title,
        Sentences(["The floor of a design is the least time that its own launches, kernels, exchanges and waits take "
                   "here, from the limits that this run measured."], "quiet"),
        *([Heading("Under the roof"), under_roof] if roofline.points(results) else []),
        Heading("What each floor is made of"),
        _table(rungs),
        Sentences([f"Microseconds per step. {FLOOR}"], "quiet"),
        Folded("How floors and cheat limits are made", [Sentences([" ".join(HOW_BOUNDS_ARE_MADE.split())], "quiet")]),
    ]  # fmt: skip
    return in_html(blocks, {stage.name for stage in results.stages})


def with_floor(results: Results) -> list[tuple[StageFacts, DesignFloor]]:
    """The timed rungs whose design has a floor, in table order."""
    rungs = [one for one in all_stage_facts(results) if one.floor_us and one.step_us and not one.is_reference]
    return [(one, bounds.design) for one in rungs if (bounds := one.stage.bounds) and bounds.design]


def _table(rungs: list[tuple[StageFacts, DesignFloor]]) -> Table:
    """What each rung's floor is made of, in us/step."""
    us = numbers.microseconds
    return table_of(rungs, [
        ColumnOf("Rung", lambda one: f"`{one[0].name}`{name_of(one[0].stage).removeprefix(one[0].name)}"),
        number("x floor", lambda one: numbers.ratio(one[0].times_floor)),
        number("Timed", lambda one: one[0].us),
        number("Floor", lambda one: us(one[0].floor_us)),
        number("Launching", lambda one: us(one[1].launching_us)),
        number("Kernels", lambda one: us(one[1].kernels_us)),
        number("Exchanging", lambda one: us(one[1].exchanging_us)),
        number("Waiting", lambda one: us(one[1].waiting_us)),
        ColumnOf("Multiplies by", lambda one: one[1].arithmetic),
    ])  # fmt: skip
