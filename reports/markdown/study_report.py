"""A study's `report.md`, and its numbers as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from urllib.parse import quote

from ladder.records.run import Group, Results, StageResult
from reports.facts import numbers
from reports.facts.ablations import FIGURES, ablation
from reports.facts.numbers import line
from reports.facts.oracle_distance import oracle_distances
from reports.facts.provenance import origins
from reports.facts.run_table import BLOCKS, FASTEST_REFERENCE, MARKS, ON_GPU_TIME, disturbed_mark, heading, name_of
from reports.facts.scaling import scalings
from reports.facts.study_points import (
    PointLead,
    StudyResults,
    not_passed,
    point_lead,
    point_text,
    point_winners,
    setting,
    value_text,
)
from reports.facts.times import step_us
from reports.facts.verdict import study_sentences
from reports.facts.warnings import notices
from reports.figures.study_figures import seeds_of
from reports.markdown.ablation_section import HOW_TO_READ, ablation_table, overlaps
from reports.markdown.tables import bullets, cell, code, details, notice_blocks, picture, table

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
        (_link(point.name, point_text(point), point.name in results.runs), point.status, _problem(results, point.name))
        for point in study.points
    ]
    pictures = [name for name in sorted(figures) if name.endswith(".svg") and not name.startswith(ABLATION)]
    timed = first is not None and not seeds_of(results)  # a study of curves times short runs only
    blocks = [
        f"# {line(study.title)}",
        *([line(study.question)] if study.question else []),
        *_loud(results),
        *([line(" ".join(study_sentences(results)))] if timed else []),
        *(_image(name) for name in pictures),
        *([_varied(results, first), *_origins(results)] if first else ["No point is measured yet."]),
        *((*_step_times(results), *_best(results), *_scaling(results)) if timed else ()),
        *_oracle_distances(results),
        *_ablations(results, figures),
        *_published(results),
        "## Details",
        *details("Missing times", [bullets(found)] if (found := not_passed(results)) else []),
        *details("Points", [table(("Point", "Status", "Problem"), points)]),
        *details("Provenance", _provenance(results)),
    ]
    return "\n\n".join(blocks) + "\n"


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
    """The varied settings, and the first point's problem."""
    varied = results.study.varied
    text = line(heading(first))
    if not varied:
        return f"{text}."
    return f"Varied: {line(numbers.listing(setting(key) for key in varied))}. The first point is {text}."


def _origins(results: StudyResults) -> Iterator[str]:
    """The origin of the numbers, or one for each group of points with the same GPU, day and commit."""
    texts = {id(results.runs[point.name]): point_text(point) for point in results.measured}
    found = origins(results.runs[point.name] for point in results.measured)
    if len(found) == 1:
        yield line(found[0][0])
    else:
        yield bullets(f"{numbers.listing(texts[id(run)] for run in runs)}: {origin}" for origin, runs in found)


def _loud(results: StudyResults) -> Iterator[str]:
    """The loud notices of all points, each once."""
    loud = {notice.text: notice for run in results.runs.values() for notice in notices(run) if notice.loud}
    yield from notice_blocks(list(loud.values()))


def _step_times(results: StudyResults) -> Iterator[str]:
    yield "## Time of a step"
    yield f"us/step, the median of all runs. {MARKS}"
    yield _times(results, lambda stage: _marked(stage, numbers.microseconds(_median(stage))))


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
    found = list(point_winners(results))
    if not found:
        return
    yield "## The fastest rung against the fastest reference"
    yield (
        f"The fastest rung of each class of precision. Lead: x of {FASTEST_REFERENCE}, with the range over processes. "
        "At most: a reference without a time at that point, named beside the lead, is faster than this one at another "
        "point. A lead is left out if such a reference is faster wherever both have a time."
        + (f" {ON_GPU_TIME}" if any(one.lead.on_gpu_time for one in found) else "")
    )
    yield table(
        ("Point", "Precision", "Fastest rung", "us/step", "Fastest reference", "us/step", "Lead"),
        [
            (
                cell(point_text(one.point)),
                one.lead.precision,
                code(one.lead.stage.name),
                _marked(one.lead.stage, numbers.microseconds(_median(one.lead.stage))),
                code(one.lead.reference.name),
                _marked(one.lead.reference, numbers.microseconds(one.lead.reference_us)),
                cell(one.text + (f" ({numbers.listing(one.missing)})" if one.missing else "")),
            )
            for one in found
        ],
        right=[False, False, False, True, False, True, True],
    )


def _scaling(results: StudyResults) -> Iterator[str]:
    """What more GPUs buy, at each point."""
    found = list(scalings(results))
    if not found:
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
                cell(point_text(one.point)),
                _name(one.stage),
                _marked(one.stage, numbers.microseconds(one.us)),
                numbers.ratio(one.base_us / one.us if one.base_us else None),
                numbers.share(one.strong),
                numbers.share(one.weak),
                f"{_name(one.best)}, {numbers.microseconds(one.best_us)}",
                numbers.ratio(one.best_us / one.us),
            )
            for one in found
        ],
        right=[False, False, True, True, True, True, False, True],
    )


def _ablations(results: StudyResults, figures: Collection[str]) -> Iterator[str]:
    """What the profiles of ablations counted at each point: allocator calls, and copies to the GPU."""
    for group in FIGURES:
        points = [(point, found) for point in results.measured if (found := ablation(results.runs[point.name], group))]
        if points:
            yield f"## {BLOCKS[group]}"
            yield HOW_TO_READ[group]
        for point, found in points:
            yield f"### {line(point_text(point)[:1].upper() + point_text(point)[1:])}"
            yield ablation_table(group, found)
            yield from overlaps(found)
            if (name := ablation_figure_name(group, point.name)) in figures:
                yield _image(name)


def _oracle_distances(results: StudyResults) -> Iterator[str]:
    groups = seeds_of(results)
    if not groups:
        return
    yield "## Distance from the oracle's curves"
    yield (
        "The largest distance in training loss at any point of any seed, relative to the oracle's loss in its first "
        "epoch. The limit is verification's limit for whole epochs, whose means are steadier than those of a few steps."
    )
    for name, points in groups.items():
        found = oracle_distances([results.runs[point.name] for point in points])
        yield f"{cell(name or 'All points')}:"
        yield table(
            ("Stage", "Precision", "Largest distance", "Limit", "Within"),
            [
                (
                    _name(one.stage),
                    numbers.precision(one.stage.precision),
                    f"{one.worst:.1e}",
                    "-" if one.limit is None else f"{one.limit:.1e}",
                    {True: "yes", False: "**no**", None: "-"}[one.within],
                )
                for one in found
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
    found = results.study.published
    if not found:
        return
    yield "## Published numbers"
    yield "These numbers are of other programs on other GPUs; none was measured here."
    yield table(
        ("Publication", "Measure", "Published", "Their GPU"),
        [
            [cell(text) for text in (f"[{one.who}]({one.link})" if one.link else one.who, one.what, one.value, one.gpu)]
            for one in found
        ],
    )


def _problem(results: StudyResults, name: str) -> str:
    return cell(heading(results.runs[name])) if name in results.runs else ""


def _link(name: str, text: str, there: bool) -> str:
    return cell(f"[{text}]({quote(name)}/results.json)" if there else text)


def _image(figure: str) -> str:
    return picture(_title(figure), f"figures/{figure}")


def _title(figure: str) -> str:
    return cell(figure.removesuffix(".svg").replace("_", " ").replace("-", " ").capitalize())
