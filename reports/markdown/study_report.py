"""A study's `report.md`, and its numbers as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from urllib.parse import quote

from ladder.records.run import Group, Results, StageResult
from reports.facts import numbers
from reports.facts.ablations import FIGURES, ablation
from reports.facts.energy import how_to_read_energy
from reports.facts.numbers import line
from reports.facts.oracle_distance import oracle_distances
from reports.facts.provenance import origins
from reports.facts.run_table import BLOCKS, FASTEST_REFERENCE, MARKS, ON_GPU_TIME, disturbed_mark, heading, name_of
from reports.facts.scaling import scalings
from reports.facts.study_points import (
    PointLead,
    StudyResults,
    accuracy_text,
    further_differences,
    not_passed,
    point_lead,
    point_text,
    point_winners,
    setting,
    value_text,
)
from reports.facts.times import step_us
from reports.facts.verdict import study_savings, study_sentences
from reports.figures.study_figures import seeds_of
from reports.markdown.ablation_section import HOW_TO_READ, ablation_table, overlaps
from reports.screens.blocks import Table
from reports.screens.details import energy
from reports.screens.run import loud_notices
from reports.writers.markdown import bullets, cell, code, in_markdown, laid_out, picture, table

CSV_COLUMNS = (
    "stage", "group", "precision", "device", "status", "step_us", "step_us_min", "step_us_max", "runs", "speedup",
    "gpu_memory_mib", "prepare_s", "test_accuracy",
)  # fmt: skip


ABLATION = "ablation-"  # prefix of the file names of ablation figures


def ablation_figure_name(group: Group, point: str) -> str:
    """The file name of a point's ablation figure: `ablation-memory-hidden-128.svg`."""
    return f"{ABLATION}{Path(FIGURES[group]).stem}-{point}.svg"


def study_report(results: StudyResults, figures: Collection[str]) -> str:
    """The whole report; `figures` names the files in the folder `figures` beside it."""
    study = results.study
    first = next(iter(results.runs.values()), None)
    points = [
        (
            cell(f"[{point_text(point)}]({quote(point.name)}/)" if run else point_text(point)),
            point.status,
            cell(heading(run)) if run else "",
        )
        for point in study.points
        for run in (results.runs.get(point.name),)
    ]
    pictures = [name for name in sorted(figures) if name.endswith(".svg") and not name.startswith(ABLATION)]
    timed = first is not None and not seeds_of(results)  # a study of curves times short runs only
    blocks = [
        f"# {line(study.title)}",
        *([line(study.question)] if study.question else []),
        *_loud(results),
        *([line(" ".join(study_sentences(results)))] if timed else []),
        *([bullets(savings)] if (savings := list(study_savings(results))) else []),
        *(_image(results, name) for name in pictures),
        *([_varied(results, first), *_origins(results)] if first else ["No point is measured yet."]),
        *((*_step_times(results), *_best(results), *_scaling(results)) if timed else ()),
        *_accuracies(results),
        *_energy(results),
        *_oracle_distances(results),
        *_ablations(results, figures),
        *_published(results),
        "## Details",
        *_folded("Missing results", [bullets(failures)] if (failures := not_passed(results)) else []),
        *_folded("Points", [table(("Point", "Status", "Problem"), points)]),
        *_folded("Provenance", _provenance(results)),
    ]
    return "\n\n".join(blocks) + "\n"


def _folded(summary: str, blocks: Iterable[str]) -> list[str]:
    inside = list(blocks)
    return [f"<details><summary>{summary}</summary>", *inside, "</details>"] if inside else []


def _provenance(results: StudyResults) -> Iterator[str]:
    yield f"```\n{' '.join(results.study.command.split())}\n```"
    yield (
        f"Begun {line(results.study.created)}. This report is rendered from `study.json` and each point's "
        "`results.json`; `python run_ladder.py report FOLDER` renders it again, without a GPU. With a point's folder, "
        "it renders that point's own report."
    )


def study_csv(results: StudyResults) -> str:
    """A line for every stage at every point, with empty cells for missing numbers."""
    with io.StringIO(newline="") as text:
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow([*results.study.varied, *CSV_COLUMNS])
        for point in results.measured:
            run = results.runs[point.name]
            for stage in run.stages:
                values = [value_text(point.values[key]) for key in results.study.varied]
                writer.writerow([*values, *_csv_cells(stage, point_lead(results, point, stage))])
        return text.getvalue()


def _csv_cells(stage: StageResult, lead: PointLead | None) -> Iterator[object]:
    spread, timing = step_us(stage), stage.timing
    yield from (stage.name, stage.group, stage.precision, stage.device, stage.status)
    yield from (spread.median, spread.min, spread.max) if spread else (None, None, None)
    yield len(timing.runs_s) if spread and timing else None
    yield lead.lead.ratio.times if lead else None
    yield timing.gpu_memory_mib if spread and timing else None
    yield timing.prepare_s if spread and timing else None
    yield stage.metrics.test_accuracy if spread and stage.metrics else None


def _varied(results: StudyResults, first: Results) -> str:
    """The varied settings, the first point's problem, and in what else others differ."""
    varied = results.study.varied
    text = line(heading(first))
    if not varied:
        return f"{text}."
    more = "".join(f"; {line(difference)}" for difference in further_differences(results.study))
    return f"Varied: {line(numbers.listing(setting(key) for key in varied))}. The first point is {text}{more}."


def _origins(results: StudyResults) -> Iterator[str]:
    """The origin of the numbers, or one for each group of points with the same GPU, day and commit."""
    texts = {id(results.runs[point.name]): point_text(point) for point in results.measured}
    groups = origins(results.runs[point.name] for point in results.measured)
    if len(groups) == 1:
        yield line(groups[0][0])
    else:
        yield bullets(f"{numbers.listing(texts[id(run)] for run in runs)}: {origin}" for origin, runs in groups)


def _loud(results: StudyResults) -> Iterator[str]:
    """The loud notices of all points, each once."""
    if told := in_markdown([loud_notices(results.runs.values())]):
        yield told


def _step_times(results: StudyResults) -> Iterator[str]:
    yield "## Time of a step"
    of_all = " of all networks" if any(run.problem.networks > 1 for run in results.runs.values()) else ""
    yield f"us/step{of_all}, the median of all runs. {MARKS}"
    yield _times(results, lambda stage: _marked(stage, numbers.microseconds(_median(stage))))


def _accuracies(results: StudyResults) -> Iterator[str]:
    if any(accuracy_text(results, stage) for run in results.runs.values() for stage in run.stages):
        yield "## Test accuracy"
        yield _times(results, lambda stage: accuracy_text(results, stage))


def _times(results: StudyResults, text: Callable[[StageResult], str]) -> str:
    """A row for each stage, a column for each point."""
    return table(
        ("Stage", "Precision", *(cell(point_text(point)) for point in results.measured)),
        [
            (
                _name(stage),
                numbers.precision(stage.precision),
                *(_time(results.at(point, stage.name), text) for point in results.measured),
            )
            for stage in results.stages()
        ],
        right=[False, False, *(True for _ in results.measured)],
    )


def _time(stage: StageResult | None, text: Callable[[StageResult], str]) -> str:
    if stage is None:
        return numbers.MISSING
    return f"**{stage.status}**" if stage.status in ("failed", "crashed") else text(stage)


def _marked(stage: StageResult, text: str) -> str:
    throttled = ", throttled" if stage.timing is not None and stage.timing.throttled else ""
    return f"{text}{disturbed_mark(stage) if step_us(stage) else ''}{throttled}"


def _best(results: StudyResults) -> Iterator[str]:
    winners = list(point_winners(results))
    if not winners:
        return
    yield "## The fastest rung against the fastest reference"
    yield (
        f"The fastest rung of each class of precision. Lead: x of {FASTEST_REFERENCE}, with the range over processes. "
        "At most: a reference without a time at that point, named beside the lead, is faster than this one at another "
        "point. A lead is left out if such a reference is faster wherever both have a time."
        + (f" {ON_GPU_TIME}" if any(winner.lead.on_gpu_time for winner in winners) else "")
    )
    yield table(
        ("Point", "Precision", "Fastest rung", "us/step", "Fastest reference", "us/step", "Lead"),
        [
            (
                cell(point_text(winner.point)),
                winner.lead.precision,
                code(winner.lead.stage.name),
                _marked(winner.lead.stage, numbers.microseconds(_median(winner.lead.stage))),
                code(winner.lead.reference.name),
                _marked(winner.lead.reference, numbers.microseconds(winner.lead.reference_us)),
                cell(winner.text + (f" ({numbers.listing(winner.missing)})" if winner.missing else "")),
            )
            for winner in winners
        ],
        right=[False, False, False, True, False, True, True],
    )


def _scaling(results: StudyResults) -> Iterator[str]:
    """What more GPUs buy, at each point."""
    scaled = list(scalings(results))
    if not scaled:
        return
    yield "## Several GPUs against one"
    yield (
        "Efficiency is the share of the GPUs that is a gain over the rung on one GPU that a stage climbs from. Strong: "
        "both have the same batch. Weak: the one GPU has as many images as each of the several."
    )
    yield table(
        ("Point", "Stage", "us/step", "x of one GPU", "Strong", "Weak", "Fastest on one GPU", "x of it"),
        [
            (
                cell(point_text(scaling.point)),
                _name(scaling.stage),
                _marked(scaling.stage, numbers.microseconds(scaling.us)),
                numbers.ratio(scaling.base_us / scaling.us if scaling.base_us else None),
                numbers.share(scaling.strong),
                numbers.share(scaling.weak),
                f"{_name(scaling.best)}, {_marked(scaling.best, numbers.microseconds(scaling.best_us))}",
                numbers.ratio(scaling.best_us / scaling.us),
            )
            for scaling in scaled
        ],
        right=[False, False, True, True, True, True, False, True],
    )


def _ablations(results: StudyResults, figures: Collection[str]) -> Iterator[str]:
    """What the profiles of ablations counted at each point: allocator calls, and copies to the GPU."""
    for group in FIGURES:
        points = [(point, rungs) for point in results.measured if (rungs := ablation(results.runs[point.name], group))]
        if points:
            yield f"## {BLOCKS[group]}"
            yield HOW_TO_READ[group]
        for point, rungs in points:
            yield f"### {line(point_text(point)[:1].upper() + point_text(point)[1:])}"
            yield ablation_table(group, rungs)
            yield from overlaps(rungs)
            if (name := ablation_figure_name(group, point.name)) in figures:
                yield _image(results, name)


def _energy(results: StudyResults) -> Iterator[str]:
    """Joules an epoch, and the way to an accuracy, at each point whose stages have either."""
    sections = [(point, energy(results.runs[point.name])) for point in results.measured]
    for number, (point, section) in enumerate((point, section) for point, section in sections if section):
        if number == 0:
            yield in_markdown(section[:1])
            yield line(how_to_read_energy(*results.runs.values()))
        yield f"### {line(point_text(point)[:1].upper() + point_text(point)[1:])}"
        for block in section[1:]:
            if isinstance(block, Table):
                yield laid_out(block)


def _oracle_distances(results: StudyResults) -> Iterator[str]:
    groups = seeds_of(results)
    if not groups:
        return
    yield "## Distance from the oracle's curves"
    yield (
        "The largest distance in training loss in any part of any seed, as a share of the oracle's loss in its first "
        "epoch. The limit is the one that verification sets for an epoch's loss, of the strictest seed. Each part of "
        "some steps has a trainer of its own, which goes on from the last one's parameters; nothing is timed."
    )
    for name, points in groups.items():
        distances = oracle_distances([results.runs[point.name] for point in points])
        yield f"{cell(name or 'All points')}:"
        yield table(
            ("Stage", "Precision", "Largest distance", "Limit", "Within"),
            [
                (
                    _name(distance.stage),
                    numbers.precision(distance.stage.precision),
                    f"{distance.worst:.1e}",
                    "-" if distance.limit is None else f"{distance.limit:.1e}",
                    {True: "yes", False: "**no**", None: "-"}[distance.within],
                )
                for distance in distances
            ],
            right=[False, False, True, True, False],
        )


def _name(stage: StageResult) -> str:
    """A stage's name as code, with `(CPU)` behind it if it ran there."""
    return code(stage.name) + cell(name_of(stage).removeprefix(stage.name))


def _median(stage: StageResult) -> float | None:
    spread = step_us(stage)
    return spread.median if spread else None


def _published(results: StudyResults) -> Iterator[str]:
    rows = results.study.published
    if not rows:
        return
    yield "## Published numbers"
    yield "These numbers are of other programs on other GPUs; none was measured here."
    yield table(
        ("Publication", "Measure", "Published", "Their GPU"),
        [
            [cell(text) for text in (f"[{row.who}]({row.link})" if row.link else row.who, row.what, row.value, row.gpu)]
            for row in rows
        ],
    )


def _image(results: StudyResults, figure: str) -> str:
    stem = figure.removesuffix(".svg")
    kind, _, name = stem.partition("-")
    title = stem.replace("_", " ").replace("-", " ").capitalize()
    if kind == "curves" and (points := seeds_of(results).get(name)):
        problem = results.runs[points[0].name].problem
        title = f"Training and validation, {problem.network}, batch {problem.batch_size}"
    if kind == "energy":
        title = f"Joules an epoch, {next(point_text(point) for point in results.measured if point.name == name)}"
    return picture(cell(title), f"figures/{figure}")
