"""The picture of a ladder over a user's PyTorch model: a dot for each rung, and an arrow from its parent."""

from __future__ import annotations

from itertools import groupby

from ladder.records.torch_run import TorchResults
from reports.facts import numbers
from reports.facts.torch_rows import FUSED, TorchRow, machine, ratio, torch_rows
from reports.figures.canvas import Canvas
from reports.figures.chart import ChartLayout, Heading, Row, RowChart
from reports.figures.ladder import AXIS, compared, reading, with_parents
from reports.figures.style import Colour

UNCOUNTED = "Preparation is not counted."
RING = "Grey ring: not ranked, as it is {}."
LESS_EXACT = "Less exact: an error of the rung is above 4 times eager mode's largest."
INSTEAD = "instead"
TUNED = "the tuned eager loop"  # what the rung that fuses the optimizer is
HEADINGS: dict[str, tuple[str, Colour]] = {
    "CPU": ("The CPU runs every operation", "host"),
    "host": ("The host launches every kernel", "host"),
    "graph": ("CUDA graphs launch the kernels", "kernels"),
    INSTEAD: ("Common recipes, for comparison", "reference"),
}  # in the order of the picture


def shown(results: TorchResults) -> list[TorchRow]:
    """The timed rungs by what launches their kernels; common recipes are last, and no change is left out."""
    order = list(HEADINGS)
    timed = [row for row in torch_rows(results) if row.step_us is not None and row.rung.group != "left out"]
    return sorted(timed, key=lambda row: order.index(_kind(row)))


def _kind(row: TorchRow) -> str:
    return INSTEAD if row.rung.group == INSTEAD else row.regime


def headline(results: TorchResults) -> str:
    """The fastest time of a rung as exact, and its speedups.

    Such as `compiled-graph, the fastest in float32, takes 100 us per step: 26x as fast as eager`.
    """
    rows, fastest = shown(results), _fastest(results)
    own = [row for row in rows if row.rung.group != INSTEAD]
    exact = any(row.is_exact for row in own)
    if fastest is None:
        return "No rung was timed in this run"
    over = [row for row in rows if row is rows[0] or row.name == FUSED]
    known = [(row.name, ratio(row.rung, fastest.rung, results)) for row in over if row is not fastest]
    gains = [gain.over(name) for name, gain in known if gain is not None and not gain.is_noise]
    best = fastest if gains else rows[0]
    takes = f"takes {numbers.microseconds(_median_us(best))} us per step"
    if not gains:
        return f"{best.name} {takes}"
    quicker = {row.rung.precision for row in own if _median_us(row) < _median_us(best)}
    among = "as exact as eager mode" if "float32" in quicker else "in float32"
    aside = f", the fastest {among}," * bool(quicker)
    told = f"{best.name}{aside} {takes}{' in float32' * (exact and 'float32' not in aside)}: {', '.join(gains)}"
    return f"{told}, {TUNED}" if told.endswith(FUSED) else told


def _fastest(results: TorchResults) -> TorchRow | None:
    """The fastest rung as exact as eager mode, else the fastest of all; None if none was timed."""
    rows = shown(results)
    exact = [row for row in rows if row.rung.group != INSTEAD and row.is_exact]
    return min(exact or rows, key=_median_us, default=None)


def _median_us(row: TorchRow) -> float:
    """A timed rung's microseconds per step."""
    assert row.step_us is not None
    return row.step_us.median


def torch_ladder(results: TorchResults, layout: ChartLayout) -> Canvas:
    """The picture in a layout; at least one rung must have a time."""
    known, best = shown(results), _fastest(results)
    if not layout.has_references:
        known = [row for row in known if row.rung.group != INSTEAD]
    rows = [_row(row, best is not None and row.name == best.name) for row in known]
    rows = with_parents(rows, [row.rung.parent for row in known])
    kinds = zip(map(_kind, known), rows, strict=True)
    groups = [(*HEADINGS[name], [row for _, row in of]) for name, of in groupby(kinds, key=lambda pair: pair[0])]
    subject = f"{results.model.file}, batch {results.model.batch_size}, {machine(results)}"
    says = [UNCOUNTED]
    rings = {
        "less exact": any(row.rung.status == "less exact" for row in known),
        "not in float32": any(row.rung.precision != "float32" for row in known),
        "a common recipe": any(_kind(row) == INSTEAD for row in known),
    }
    if why := [words for words, is_there in rings.items() if is_there]:
        says.append(RING.format(", or ".join(why)))
    if any(row.rung.status == "less exact" for row in known):
        says.append(LESS_EXACT)
    chart = RowChart(groups, AXIS, [reading(rows, layout), " ".join(says)])
    return chart.drawn(Heading(headline(results), subject, layout.width), layout)


def _row(row: TorchRow, is_best: bool) -> Row:
    """A rung as a row of the chart."""
    over, parent_us = row.versus_parent, row.parent_us.median if row.parent_us is not None else None
    is_ranked = _kind(row) != INSTEAD and row.is_exact
    colour = HEADINGS[_kind(row)][1] if is_ranked else "faint"
    mark = compared(_median_us(row), over, parent_us, colour, is_hollow=not is_ranked)
    speedup = over.over(row.rung.parent or "") if over is not None else ""
    remarks = ["not float32"] * (row.rung.precision != "float32") + ["less exact"] * (row.rung.status == "less exact")
    words = row.rung.words + f" ({', '.join(remarks)})" * bool(remarks)
    return Row(row.name, numbers.microseconds(_median_us(row)), mark, speedup, words, is_best=is_best)
