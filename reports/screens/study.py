"""The screens of a study: its times at every point, its report, and its numbers as CSV."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from urllib.parse import quote

from ladder.records.run import Results, StageResult
from ladder.records.statistics import VERDICT_CONFIDENCE
from ladder.records.study import Point, Published
from reports.facts import numbers
from reports.facts.baselines import winners as winners_at
from reports.facts.energy import how_to_read_energy
from reports.facts.oracle_distance import OracleDistance, oracle_distances
from reports.facts.provenance import origins
from reports.facts.run_table import (
    FASTEST_REFERENCE,
    MARKS,
    ON_GPU_TIME,
    disturbed_mark,
    heading,
    name_of,
)
from reports.facts.scaling import scalings
from reports.facts.stage_facts import StageFacts
from reports.facts.study_points import (
    StudyResults,
    accuracy_text,
    further_differences,
    is_disturbed,
    not_passed,
    point_text,
    point_winners,
    setting,
)
from reports.facts.times import median_us, step_us
from reports.facts.verdict import study_savings, study_sentences
from reports.facts.warnings import lacking, not_made_in_words
from reports.figures.canvas import Canvas
from reports.figures.run_figures import seeds_of
from reports.screens.blocks import (
    Block,
    Code,
    ColumnOf,
    Figure,
    Folded,
    Group,
    Heading,
    Screen,
    Sentences,
    Table,
    Tone,
    number,
    table_of,
)
from reports.screens.details import energy
from reports.screens.run import loud_notices, run_screen
from reports.screens.stages import STATUS

BAD: dict[str, Tone] = {"failed": "bad", "crashed": "bad", "no": "bad"}  # cells
NO_FIGURES: Mapping[str, Canvas] = MappingProxyType({})


def study_report_screen(results: StudyResults, drawn: Mapping[str, Canvas] = NO_FIGURES) -> Screen:
    """The whole report; `drawn` has its figures by file name."""
    study = results.study
    first = next(iter(results.runs.values()), None)
    pictures = [_picture(name, canvas) for name, canvas in sorted(drawn.items())]
    again = (
        f"Begun {study.created}. This report is rendered from `study.json` and each point's `results.json`; "
        "`python run_ladder.py report FOLDER` renders it again, without a GPU. With a point's folder, it renders that "
        "point's own report."
    )
    missing = [*not_passed(results), *lacking(stage for run in results.runs.values() for stage in run.stages)]
    missing += [
        f"{point_text(point)}: {told}" if point.values else told
        for point in results.measured
        for told in not_made_in_words(results.runs[point.name])
    ]
    timed = first is not None and not seeds_of(results)  # a study of curves times short runs only
    blocks: list[Block] = [
        Sentences([" ".join(study_sentences(results))] if timed else []),
        *_list(list(study_savings(results))),
        *pictures,
        Sentences([_varied(results, first) if first else "No point is measured yet."]),
        *([_origins(results)] if first else []),
        *((*_step_times(results), *_best(results), *_scaling(results)) if timed else ()),
        *_accuracies(results),
        *_energy(results),
        *_oracle_distances(results),
        *_published(results),
        Heading("Details"),
        *([Folded("Missing results and checks", _list(missing))] if missing else []),
        Folded("Points", [_points(results)]),
        Folded("Provenance", [Code("Its command", [" ".join(study.command.split())], ""), Sentences([again])]),
    ]
    lead = [Sentences([study.question] if study.question else []), loud_notices(results.runs.values())]
    return Screen(study.title, "", blocks, study, [], lead)


def _list(texts: Sequence[str]) -> list[Block]:
    return [Sentences(texts, is_list=True)] if texts else []


def _points(results: StudyResults) -> Table:
    def address(point: Point) -> str:
        return f"[{point_text(point)}]({quote(point.name)}/)" if point.name in results.runs else point_text(point)

    def problem(point: Point) -> str:
        return heading(results.runs[point.name]) if point.name in results.runs else ""

    return table_of(results.study.points, [
        ColumnOf("Point", address), ColumnOf("Status", lambda point: point.status), ColumnOf("Problem", problem)
    ], is_named=False)  # fmt: skip


def _varied(results: StudyResults, first: Results) -> str:
    """The varied settings, the first point's problem, and in what else others differ."""
    varied = results.study.varied
    text = heading(first)
    if not varied:
        return f"{text}."
    more = "".join(f"; {difference}" for difference in further_differences(results.study))
    return f"Varied: {numbers.listing(setting(key) for key in varied)}. The first point is {text}{more}."


def _origins(results: StudyResults) -> Sentences:
    """The origin of the numbers, or one for each group of points with the same GPU, day and commit."""
    texts = {id(results.runs[point.name]): point_text(point) for point in results.measured}
    groups = origins(results.runs[point.name] for point in results.measured)
    if len(groups) == 1:
        return Sentences([groups[0][0]])
    named = [f"{numbers.listing(texts[id(run)] for run in runs)}: {origin}" for origin, runs in groups]
    return Sentences(named, is_list=True)


def _step_times(results: StudyResults) -> Iterator[Block]:
    of_all = " of all networks" if any(run.problem.networks > 1 for run in results.runs.values()) else ""
    yield Heading("Time of a step")
    whole = all(results.at(point, stage.name) for point in results.measured for stage in results.stages())
    absent = "" if whole else f" {numbers.MISSING}: not asked for, or skipped there."
    yield Sentences([f"us/step{of_all}, the median of all runs. {MARKS}{absent}"])
    yield _times(results, lambda stage: _marked(stage, median_us(stage)))


def _accuracies(results: StudyResults) -> Iterator[Block]:
    if any(accuracy_text(results, stage) for run in results.runs.values() for stage in run.stages):
        yield Heading("Test accuracy")
        yield _times(results, lambda stage: accuracy_text(results, stage))


def _times(results: StudyResults, text: Callable[[StageResult], str]) -> Table:
    """A row for each stage, a column for each point."""

    def here(point: Point, stage: StageResult) -> str:
        known = results.at(point, stage.name)
        if known is None:
            return numbers.MISSING
        return known.status if known.status in BAD else text(known)

    return table_of(results.stages(), [
        ColumnOf("Stage", _name),
        ColumnOf("Precision", lambda stage: numbers.precision(stage.precision)),
        *(number(point_text(point), partial(here, point), tones=BAD) for point in results.measured),
    ], is_named=False)  # fmt: skip


def _marked(stage: StageResult, us: float | None) -> str:
    throttled = ", throttled" if stage.timing is not None and stage.timing.throttled else ""
    return f"{numbers.microseconds(us)}{disturbed_mark(stage) if step_us(stage) else ''}{throttled}"


def _best(results: StudyResults) -> Iterator[Block]:
    winners = list(point_winners(results))
    if not winners:
        return
    yield Heading("The fastest rung against the fastest reference")
    most = max(len(one.processes) for each in winners for one in (each.lead.stage, each.lead.reference))
    clock = {False: "", True: ", GPU"}  # behind a time
    every = sum(len(winners_at(run)) for run in results.runs.values())
    yield Sentences([
        f"The fastest rung of each class of precision. Lead: the speedup over {FASTEST_REFERENCE}, with its "
        f"{VERDICT_CONFIDENCE:.1%} interval, from {most} process{'es' * (most > 1)} a side and at least as wide as "
        "earlier recordings scatter."
        + " At most: a reference without a time there, named beside the lead, is faster at another point. A lead is "
        "left out if it is faster wherever both have a time."
        * (every > len(winners) or any(winner.missing for winner in winners))
        + f" {ON_GPU_TIME}" * any(winner.lead.on_gpu_time for winner in winners)
    ])  # fmt: skip
    yield table_of(winners, [
        ColumnOf("Point", lambda one: point_text(one.point)),
        ColumnOf("Precision", lambda one: one.lead.precision),
        ColumnOf("Fastest rung", lambda one: f"`{one.lead.stage.name}`"),
        number("us/step", lambda one: _marked(one.lead.stage, one.lead.own_us) + clock[one.lead.on_gpu_time]),
        ColumnOf("Fastest reference", lambda one: f"`{one.lead.reference.name}`"),
        number("us/step", lambda one: _marked(one.lead.reference, one.lead.reference_us) + clock[one.lead.on_gpu_time]),
        number("Lead", lambda one: one.in_full),
    ], is_named=False)  # fmt: skip


def _scaling(results: StudyResults) -> Iterator[Block]:
    """What more GPUs buy, at each point."""
    scaled = list(scalings(results))
    if not scaled:
        return
    yield Heading("Several GPUs against one")
    yield Sentences([
        "Efficiency is the share of the GPUs that is a gain over the rung on one GPU that a stage climbs from. Strong: "
        "both have the same batch. Weak: the one GPU has as many images as each of the several."
    ])  # fmt: skip
    yield table_of(scaled, [
        ColumnOf("Point", lambda one: point_text(one.point)),
        ColumnOf("Stage", lambda one: _name(one.stage)),
        number("us/step", lambda one: _marked(one.stage, one.us)),
        number("Speedup over one GPU", lambda one: numbers.ratio(one.base_us / one.us if one.base_us else None)),
        number("Strong", lambda one: numbers.share(one.strong)),
        number("Weak", lambda one: numbers.share(one.weak)),
        ColumnOf("Fastest on one GPU", lambda one: f"{_name(one.best)}, {_marked(one.best, one.best_us)}"),
        number("Speedup over it", lambda one: numbers.ratio(one.best_us / one.us)),
    ], is_named=False)  # fmt: skip


def _point_heading(point: Point) -> Heading:
    text = point_text(point)
    return Heading(text[:1].upper() + text[1:], 3)


def _energy(results: StudyResults) -> Iterator[Block]:
    """Joules per epoch, and the way to an accuracy, at each point whose stages have either."""
    sections = [(point, told) for point in results.measured if (told := energy(results.runs[point.name]))]
    if sections:
        yield sections[0][1][0]
        yield Sentences([how_to_read_energy(*results.runs.values())])
    for point, (_, *tables) in sections:
        yield _point_heading(point)
        yield from (Table(block.columns, is_named=False) for block in tables if isinstance(block, Table))


def _oracle_distances(results: StudyResults) -> Iterator[Block]:
    groups = seeds_of(results)
    if not groups:
        return
    yield Heading("Distance from the oracle's curves")
    yield Sentences([
        "The largest distance in training loss in any part of any seed, as a share of the oracle's loss in its first "
        "epoch. The limit is the one that verification sets for an epoch's loss, of the strictest seed. Each part of "
        "some steps has a trainer of its own, which goes on from the last one's parameters; nothing is timed."
    ])  # fmt: skip
    columns: list[ColumnOf[OracleDistance]] = [
        ColumnOf("Stage", lambda one: _name(one.stage)),
        ColumnOf("Precision", lambda one: numbers.precision(one.stage.precision)),
        number("Largest distance", lambda one: numbers.error(one.worst)),
        number("Limit", lambda one: numbers.MISSING if one.limit is None else numbers.error(one.limit)),
        ColumnOf("Within", lambda one: {True: "yes", False: "no", None: numbers.MISSING}[one.within], tones=BAD),
    ]
    for name, points in groups.items():
        yield Sentences([f"{name or 'All points'}:"])
        yield table_of(oracle_distances([results.runs[one.name] for one in points]), columns, is_named=False)


def _name(stage: StageResult) -> str:
    """A stage's name as code, with `(CPU)` behind it if it ran there."""
    return f"`{stage.name}`{name_of(stage).removeprefix(stage.name)}"


def _published(results: StudyResults) -> Iterator[Block]:
    if rows := results.study.published:
        yield Heading("Published numbers")
        yield Sentences(
            ["None was measured here: other programs on other GPUs, over other references than those above."]
        )
        columns: list[ColumnOf[Published]] = [
            ColumnOf("Publication", lambda row: f"[{row.who}]({row.link})" if row.link else row.who),
            ColumnOf("Measure", lambda row: row.what),
            ColumnOf("Published", lambda row: row.value),
            ColumnOf("Their GPU", lambda row: row.gpu),
        ]
        yield table_of(rows, columns, is_named=False)


def _picture(name: str, canvas: Canvas) -> Figure:
    return Figure(name, canvas.title, lambda _: canvas)


SPREAD: ColumnOf[StageFacts] = number(
    "us/step (min-max)", lambda here: numbers.spread_microseconds(step_us(here.stage)), 3
)


def study_screen(results: StudyResults) -> Screen:
    """A study; its report follows it."""
    leads = []
    for winner in point_winners(results):
        where = f"{point_text(winner.point)}, {winner.lead.precision}"
        rung, reference = winner.lead.stage.name, winner.lead.reference.name
        leads.append(f"{where}: {rung}, {winner.text} of the fastest reference, {reference}")
    blocks = [Group([_by_point(results), Sentences([*leads, *not_passed(results)], is_list=True)])]
    runs = {name: run_screen(run).facts for name, run in results.runs.items()}
    rows = [{"point": point, **row} for point, run in runs.items() for row in run["stages"]]
    return Screen(results.study.title, "", blocks, {"study": results.study, "runs": runs}, rows)


def _by_point(results: StudyResults) -> Table:
    """A row for every point and stage, and the heading of each point by the number of its first row."""
    rows: list[StageFacts] = []
    headings = {}
    for point in results.measured:
        headings[len(rows)] = point_text(point)
        every = (results.at(point, stage.name) for stage in results.stages())
        shown = [here for here in every if here is not None and here.status != "skipped"]
        rows += [StageFacts(here, results.runs[point.name]) for here in shown]
    columns: list[ColumnOf[StageFacts]] = [
        ColumnOf("stage", lambda here: name_of(here.stage)),
        number("us/step", lambda here: numbers.microseconds(here.step_us), wider=SPREAD),
        number("accuracy", lambda here: accuracy_text(results, here.stage), 2),
        ColumnOf("", lambda here: "disturbed" * is_disturbed(here.stage), 1, tone="doubtful"),
        ColumnOf("checked", lambda here: here.stage.status if here.reason else here.verdict, 2, tones=STATUS),
    ]  # fmt: skip
    return Table([column.over(rows) for column in columns], headings)
