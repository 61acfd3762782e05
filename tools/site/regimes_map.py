"""The regimes as one picture: a row a network, a column a batch, and in each cell the rung that wins there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import quote

from ladder.records.run import Results, StageResult
from ladder.records.study import Point
from reports.facts import numbers
from reports.facts.baselines import fastest, winners
from reports.facts.grouped import grouped
from reports.facts.launch_regimes import HEADINGS, Regime, regime
from reports.facts.study_points import PointLead, StudyResults, point_winners
from reports.figures.canvas import Canvas
from reports.figures.chart import folded
from reports.figures.ladder import COLOURS

TOP, FOOT, LINE = 66, 12, 18  # pixels; the last is the height of a line of the legend
UNKNOWN = "?"  # where no lead can be stated
WIDE_SAYS = (
    "Rows: hidden layers x units in each. Columns: the batch.",
    "In a cell: the winner and its lead over the fastest reference that is at least as exact.",
)
NARROW_SAYS = "Rows: hidden layers x units. Columns: batch.", "In a cell: the lead over the best reference."
MOST_LETTERS = 14  # in a line of a cell
FILLED = 0.28  # opacity of a cell, so that its text can be read on both pages


@dataclass(frozen=True)
class MapLayout:
    """The picture's places in pixels."""

    left: float  # where the columns begin
    width: float  # of all columns with it, whatever their number: two GPUs' maps have letters of one size
    row: float
    has_names: bool  # of the winners, below the leads


WIDE = MapLayout(112, 1000, 50, has_names=True)
NARROW = MapLayout(64, 340, 24, has_names=False)
MOST_COLUMN = 160  # pixels
KILO = 1024


def drawn(points: Sequence[MeasuredPoint], *, is_narrow: bool = False) -> Canvas:
    """The picture of points of one GPU, at least one, each network and batch once; a cell leads to its address."""
    rows = sorted({(point.layers, point.width) for point in points})
    batches = sorted({point.batch for point in points})
    layout = NARROW if is_narrow else WIDE
    column = min(MOST_COLUMN, (layout.width - layout.left) / len(batches))
    bottom = TOP + layout.row * len(rows)
    marks = ["Empty: not measured."]
    marks += ["ddp: on two GPUs."] * any(point.best.name.startswith("ddp") for point in points)
    marks += [f"{UNKNOWN}: no reference was timed."] * any(point.lead is None for point in points)
    begin = 4 if is_narrow else layout.left
    says = folded(" ".join(marks), layout.width - begin, "small")
    kinds = [kind for kind in HEADINGS if any(regime(point.best) == kind for point in points)]
    legend = [(HEADINGS[kind], kind) for kind in kinds]
    title = f"Which rung wins, at {numbers.count(len(points), 'measured point')}"
    right = layout.left + column * len(batches) + 4
    canvas = Canvas(
        layout.width + 4,
        bottom + FOOT + LINE * (len(legend) + len(says)),
        title,
        "; ".join(map(_words, points)),
    )
    rows_say, cells_say = NARROW_SAYS if is_narrow else WIDE_SAYS
    canvas.text(4, 16, rows_say, "faint", look="small")
    canvas.text(4, 34, cells_say, "faint", look="small")
    for index, batch in enumerate(batches):
        short = f"{batch}" if batch < KILO else f"{batch // KILO}k"
        words, look = (short, "small") if is_narrow else (f"{batch:,}", "small bold")
        canvas.text(layout.left + column * (index + 0.5), TOP - 8, words, anchor="middle", look=look)
    for index, (layers, width) in enumerate(rows):
        words = f"{layers} x {width:,}" if layers else "none"
        middle = TOP + layout.row * (index + 0.5)
        canvas.text(layout.left - 8, middle + 4, words, anchor="end", look="small" if is_narrow else "small mono")
        canvas.line([(layout.left, TOP + layout.row * index), (right - 4, TOP + layout.row * index)], "grid")
    for point in points:
        left = layout.left + column * batches.index(point.batch)
        top = TOP + layout.row * rows.index((point.layers, point.width))
        _cell(canvas, point, (left, top), (column, layout.row), has_names=layout.has_names)
    for index, (words, kind) in enumerate(legend):
        top = bottom + FOOT + LINE * index
        canvas.rectangle(begin, top, 12, 12, COLOURS[kind], opacity=FILLED)
        canvas.text(begin + 18, top + 10, words, COLOURS[kind], look="small bold")
    for index, line in enumerate(says, start=len(legend)):
        canvas.text(begin, bottom + FOOT + LINE * index + 10, line, "faint", look="small")
    return canvas


def address(point: MeasuredPoint) -> str:
    """The place of the winner on the page of the point's run or study, with its number rather than a guess."""
    within = f"{quote(point.point, safe='')}:" if point.study else ""
    return f"{point.address}#{within}{quote(point.best.name, safe='')}&all"


def _cell(
    canvas: Canvas, point: MeasuredPoint, at: tuple[float, float], size: tuple[float, float], *, has_names: bool
) -> None:
    kind: Regime = regime(point.best)
    (left, top), (width, height) = at, size
    with canvas.group("a", href=address(point), class_="place", aria_label=_words(point)):
        canvas.tip(_words(point))
        canvas.rectangle(left + 1, top + 1, width - 2, height - 2, COLOURS[kind], opacity=FILLED)
        times = numbers.ratio(point.lead.lead.ratio.times) if point.lead is not None else UNKNOWN
        shown = times if has_names or point.lead is None else f"{point.lead.lead.ratio.times:.1f}x"
        middle = left + width / 2
        names = _lines(point.best.name) if has_names else []
        first = top + height / 2 + 4 - 7 * len(names)
        canvas.text(middle, first, shown, anchor="middle", look="small bold")
        for line, name in enumerate(names, start=1):
            canvas.text(middle, first + 14 * line, name, anchor="middle", look="small mono")


def _lines(name: str) -> list[str]:
    """A name in one line, or in two where a cell is too narrow for it, broken after the middlemost hyphen."""
    breaks = [index + 1 for index, letter in enumerate(name) if letter == "-"]
    if len(name) <= MOST_LETTERS or not breaks:
        return [name]
    at = min(breaks, key=lambda index: abs(index - len(name) / 2))
    return [name[:at], name[at:]]


def _words(point: MeasuredPoint) -> str:
    """A cell in words: `1 hidden layer of 256, batch 32: cluster-fp16, 7.78x as fast as jax-scan-bf16`."""
    network = f"{numbers.count(point.layers, 'hidden layer')} of {point.width}" if point.layers else "no hidden layer"
    lead = point.lead
    how = f", {numbers.ratio(lead.lead.ratio.times)} as fast as {lead.lead.reference.name}" if lead is not None else ""
    return f"{network}, batch {point.batch}: {point.best.name}{how}"


ENDS = (784, 10)  # inputs and classes: a network with others is another question


@dataclass(frozen=True)
class MeasuredPoint:
    """A run of a network whose hidden layers are equally wide, with the winning rung."""

    layers: int  # hidden layers
    width: int  # units of each; 0 without a hidden layer
    batch: int
    results: Results
    study: str  # its title; empty for a run of its own
    point: str  # its name in the study; empty for a run of its own
    address: str  # of the page of its run or study
    best: StageResult
    leads: tuple[PointLead, ...]  # of the fastest rung of each class of precision, where one can be stated

    @property
    def lead(self) -> PointLead | None:
        """The lead of the winning rung; None if a reference that is faster elsewhere has no time here."""
        return next((winner for winner in self.leads if winner.lead.stage is self.best), None)


def measured_points(runs: Mapping[str, Results], studies: Mapping[str, StudyResults]) -> list[MeasuredPoint]:
    """The points of recorded runs and studies, by the addresses of their pages.

    Where one network was measured twice, the surest comes first: with a lead, then a run of its own, which has every
    rung, then of more processes, then the newest.
    A study without references asks another question, and so does one of seeds: their points are left out.
    """
    measured = []
    for address, run in runs.items():
        leads = tuple(PointLead(Point("", {}, {}, "measured"), lead, []) for lead in winners(run))
        measured.append(_point(run, leads, "", "", address))
    for address, results in studies.items():
        leads_of = grouped((lead.point.name, lead) for lead in point_winners(results))
        for point in results.measured if leads_of and "seed" not in results.study.varied else []:
            leads = tuple(leads_of.get(point.name, []))
            measured.append(_point(results.runs[point.name], leads, results.study.title, point.name, address))
    known = [point for point in measured if point is not None]
    known.sort(key=lambda point: point.results.created, reverse=True)
    return sorted(known, key=lambda point: (point.layers, point.width, point.batch, _doubt(point)))


def _point(run: Results, leads: tuple[PointLead, ...], study: str, name: str, address: str) -> MeasuredPoint | None:
    """The point of a run; None for another kind of network, for several, or without a rung that was timed on a GPU."""
    problem = run.problem
    best = fastest(stage for stage in run.stages if stage.group != "reference")
    if (problem.inputs, problem.classes) != ENDS or len(set(problem.hidden)) > 1 or problem.networks > 1:
        return None
    if best is None or best.device != "gpu":
        return None
    width = problem.hidden[0] if problem.hidden else 0
    return MeasuredPoint(len(problem.hidden), width, problem.batch_size, run, study, name, address, best, leads)


def _doubt(point: MeasuredPoint) -> tuple[bool, bool, bool, bool, int]:
    lead, is_validated = point.lead, point.results.problem.validate_every > 0
    return is_validated, lead is None, bool(lead and lead.missing), bool(point.study), -len(point.best.processes)
