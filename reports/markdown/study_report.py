"""A study's `report.md`, and its numbers as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Iterator
from pathlib import Path

from ladder.records.run import Group, Results, StageResult
from reports.facts import numbers
from reports.facts.ablations import FIGURES, side
from reports.facts.baselines import Winner, fastest_peer, references
from reports.facts.bottleneck import next_step
from reports.facts.numbers import line
from reports.facts.oracle_distance import oracle_distances
from reports.facts.provenance import origins
from reports.facts.study import (
    StudyResults,
    is_weak,
    name_of,
    not_passed,
    point_text,
    races,
    setting,
    speedup,
    spread_text,
    step_us,
    value_text,
)
from reports.facts.summary import BLOCKS, heading
from reports.facts.time_breakdown import profiled
from reports.facts.warnings import notices
from reports.figures.study_figures import seeds_of
from reports.markdown.ablation_section import HOW_TO_READ, overlaps, side_table
from reports.markdown.tables import bullets, cell, notice_blocks, picture, table

CSV_COLUMNS = (
    "stage", "group", "precision", "device", "status", "step_us", "step_us_min", "step_us_max", "runs", "speedup",
    "gpu_memory_mib", "prepare_s", "test_accuracy",
)  # fmt: skip


SIDES = "side-"  # how the figures' names begin that belong to a point's side rungs


def side_figure_name(group: Group, point: str) -> str:
    """The file with a point's figure of a side group: `side-memory-hidden-128.svg`."""
    return f"{SIDES}{Path(FIGURES[group]).stem}-{point}.svg"


def study_report(results: StudyResults, figures: Collection[str]) -> str:
    """The whole report; `figures` are the files that lie in the folder `figures` beside it."""
    study = results.study
    first = next(iter(results.runs.values()), None)
    points = [
        (_link(point.name, point_text(point), point.name in results.runs), point.status, _problem(results, point.name))
        for point in study.points
    ]
    blocks = [
        f"# {line(study.title)}",
        *([line(study.question)] if study.question else []),
        *([_what(results, first), *_origins(results)] if first else ["Nothing is measured yet."]),
        *_loud(results),
        *(_image(name) for name in sorted(figures) if name.endswith(".svg") and not name.startswith(SIDES)),
        *((*_step_times(results), *_best(results)) if first and not seeds_of(results) else ()),  # those of short runs
        *_nearness(results),
        *_sides(results, figures),
        *([bullets(found)] if (found := not_passed(results)) else []),
        *_published(results),
        "## Points",
        table(("Point", "Status", "Problem"), points),
        "## Made by",
        f"```\n{study.command}\n```",
        f"Begun {study.created}. Everything here is a rendering of `study.json` and of each point's `results.json`, "
        "and is made again, with no GPU, by `python run_ladder.py report FOLDER`; given a point's folder, it makes "
        "that point's own report.",
    ]
    return "\n\n".join(blocks) + "\n"


def study_csv(results: StudyResults) -> str:
    """A line for every stage at every point; empty where there is no number."""
    with io.StringIO(newline="") as text:
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow([*results.study.varied, *CSV_COLUMNS])
        for point in results.measured:
            run = results.runs[point.name]
            for stage in run.stages:
                values = [value_text(point.values[key]) for key in results.study.varied]
                reference = fastest_peer(stage, references(run))
                fair = reference is None or not is_weak(results, point, reference)
                writer.writerow([*values, *_csv_cells(run, stage, fair)])
        return text.getvalue()


def _csv_cells(run: Results, stage: StageResult, fair: bool) -> Iterator[object]:
    spread, timing = step_us(stage), stage.timing
    yield from (stage.name, stage.group, stage.precision, stage.device, stage.status)
    yield from (spread.median, spread.min, spread.max) if spread else (None, None, None)
    yield len(timing.runs_s) if spread and timing else None
    yield speedup(run, stage) if fair else None
    yield timing.gpu_memory_mib if spread and timing else None
    yield timing.prepare_s if spread and timing else None
    yield stage.metrics.test_accuracy if spread and stage.metrics else None


def _what(results: StudyResults, first: Results) -> str:
    """What is varied, and what stays."""
    varied = results.study.varied
    text = heading(first)
    if not varied:
        return f"{text}."
    return f"Varied: {numbers.listing(setting(key) for key in varied)}. The first point is {text}."


def _origins(results: StudyResults) -> Iterator[str]:
    """Where the numbers come from; and of which points, where not all come from one kind of GPU, day and commit."""
    texts = {id(results.runs[point.name]): point_text(point) for point in results.measured}
    found = origins(results.runs[point.name] for point in results.measured)
    if len(found) == 1:
        yield found[0][0]
    else:
        yield bullets(f"{numbers.listing(texts[id(run)] for run in runs)}: {origin}" for origin, runs in found)


def _loud(results: StudyResults) -> Iterator[str]:
    """What nobody may miss of any point, once."""
    loud = {notice.text: notice for run in results.runs.values() for notice in notices(run) if notice.loud}
    yield from notice_blocks(list(loud.values()))


def _step_times(results: StudyResults) -> Iterator[str]:
    points = results.measured
    yield "## Time of a step"
    yield "us/step: the median of all runs, with the fastest and the slowest. A dash: see the reasons below."
    yield table(
        ("Stage", "Precision", *(cell(point_text(point)) for point in points)),
        [
            (
                cell(name_of(stage)),
                numbers.precision(stage.precision),
                *(_time(results.at(point, stage.name)) for point in points),
            )
            for stage in results.stages()
        ],
        right=[False, False, *(True for _ in points)],
    )


def _time(stage: StageResult | None) -> str:
    if stage is not None and stage.status in ("failed", "crashed"):
        return f"**{stage.status}**"
    shortened = stage is not None and stage.timing is not None and stage.timing.throttled
    return spread_text(step_us(stage)) + (", throttled" if shortened else "")


def _best(results: StudyResults) -> Iterator[str]:
    found = list(races(results))
    if not found:
        return
    yield "## The fastest rung against the fastest reference"
    yield (
        "Within one class of precision, on the same kind of device; above 1x the rung is faster. Points are left out "
        "at which only a reference has a time that another one beats wherever both have."
    )
    yield table(
        ("Point", "Precision", "Fastest rung", "us/step", "Fastest reference", "us/step", "Speed-up"),
        [
            (
                cell(point_text(point)),
                race.precision,
                cell(race.rung.name),
                numbers.microseconds(_median(race.rung)),
                cell(race.reference.name),
                numbers.microseconds(_median(race.reference)),
                numbers.ratio(race.speedup),
            )
            for point, race in found
        ],
        right=[False, False, False, True, False, True, True],
    )
    if bounds := [f"{point_text(point)}, {bound}" for point, race in found if (bound := _bound(race))]:
        yield "What holds these rungs back, where they were profiled:"
        yield bullets(bounds)


def _bound(race: Winner) -> str:
    """What costs most in the fastest rung's step, and what its design takes at least; empty without a profile."""
    one, floor = profiled(race.rung), race.rung.floor
    if one is None:
        return ""
    least = ""
    if floor is not None and floor.design_us is not None:
        own, physical = numbers.microseconds(floor.design_us), numbers.microseconds(floor.physical_us)
        least = (
            f" Its launches, kernels and exchanges take {own} us at least; the problem, however it is done, {physical}."
        )
    return f"{race.precision}, {race.rung.name}: {next_step(one)}{least}"


def _sides(results: StudyResults, figures: Collection[str]) -> Iterator[str]:
    """What the profiles of side rungs counted at each point: calls to allocators, and copies to the GPU."""
    for group in FIGURES:
        points = [(point, found) for point in results.measured if (found := side(results.runs[point.name], group))]
        if points:
            yield f"## {BLOCKS[group]}"
            yield HOW_TO_READ[group]
        for point, found in points:
            yield f"### {point_text(point)[:1].upper()}{point_text(point)[1:]}"
            yield side_table(group, found)
            yield from overlaps(found)
            if (name := side_figure_name(group, point.name)) in figures:
                yield _image(name)


def _nearness(results: StudyResults) -> Iterator[str]:
    groups = seeds_of(results)
    if not groups:
        return
    yield "## How near the curves come to the oracle's"
    yield (
        "The largest distance in training loss at any point of any seed, by the oracle's loss in its first epoch; the "
        "limit is the one that verification holds whole epochs to, whose means are steadier than a few steps'."
    )
    for name, points in groups.items():
        found = oracle_distances([results.runs[point.name] for point in points])
        yield f"{cell(name or 'All points')}:"
        yield table(
            ("Stage", "Precision", "Largest distance", "Limit", "Within"),
            [
                (
                    cell(name_of(one.stage)),
                    numbers.precision(one.stage.precision),
                    f"{one.worst:.1e}",
                    "-" if one.limit is None else f"{one.limit:.1e}",
                    {True: "yes", False: "**no**", None: "-"}[one.within],
                )
                for one in found
            ],
            right=[False, False, True, True, False],
        )


def _median(stage: StageResult) -> float | None:
    spread = step_us(stage)
    return spread.median if spread else None


def _published(results: StudyResults) -> Iterator[str]:
    found = results.study.published
    if not found:
        return
    yield "## What others published"
    yield "Their numbers, of their programs, on their GPU; none was measured here."
    yield table(
        ("Who", "What", "Theirs", "Their GPU"),
        [
            (f"[{who}]({one.link})" if one.link else who, cell(one.what), cell(one.value), cell(one.gpu))
            for who, one in ((cell(one.who), one) for one in found)
        ],
    )


def _problem(results: StudyResults, name: str) -> str:
    return cell(heading(results.runs[name])) if name in results.runs else ""


def _link(name: str, text: str, there: bool) -> str:
    return f"[{cell(text)}]({name}/results.json)" if there else cell(text)


def _image(figure: str) -> str:
    return picture(_title(figure), f"figures/{figure}")


def _title(figure: str) -> str:
    return cell(figure.removesuffix(".svg").replace("_", " ").replace("-", " ").capitalize())
