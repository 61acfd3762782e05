"""README's table of published numbers, each beside ours if its study is recorded.

Published numbers are in the study's file. Ours come from `results/reference/<gpu>/studies/<name>` alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ladder.records.study import Published, Study
from reports.facts import numbers
from reports.facts.baselines import fastest, ratio
from reports.facts.provenance import gpu_name
from reports.facts.study_points import StudyResults
from reports.facts.times import median_us
from reports.writers.markdown import cell, table


def published_block(plans: Sequence[Study], recorded: Sequence[StudyResults]) -> str:
    """The table, a row for each published number; empty without any."""
    lines = [line for plan in plans for line in _lines(plan, recorded)]
    return table(("Study", "Publication", "Measure", "Published", "Their GPU", "Ours"), lines) if lines else ""


def _lines(plan: Study, recorded: Sequence[StudyResults]) -> Iterator[tuple[str, ...]]:
    mine = [results for results in recorded if results.study.name == plan.name]
    for row in plan.published:
        ours = "; ".join(filter(None, (_ours(row, results) for results in mine)))
        who = f"[{cell(row.who)}]({row.link})" if row.link else cell(row.who)
        waits = "not recorded yet" if row.measure else numbers.MISSING
        yield f"`{plan.name}`", who, cell(row.what), cell(row.value), cell(row.gpu), cell(ours or waits)


def _ours(row: Published, results: StudyResults) -> str:
    """Our number for the same measure, with the stage and the GPU; empty without one."""
    run = results.runs.get(row.at)
    if run is None or row.measure is None:
        return ""
    stage = run.stage(row.of) if row.of else fastest(rung for rung in run.stages if rung.group != "reference")
    us = median_us(stage)
    if stage is None or stage.timing is None or us is None:
        return ""
    where = f"{stage.name} in {numbers.precision(stage.precision)} on {gpu_name(run) or 'a CPU'}"
    cut = f", {run.problem.max_steps} steps an epoch" if run.problem.max_steps else ""
    if row.measure == "epoch":
        return f"{numbers.milliseconds(stage.timing.epoch_s.median)} ms/epoch ({where}{cut})"
    if row.measure == "step":
        return f"{numbers.microseconds(us)} us/step ({where}{cut})"
    factor = ratio(run.stage(row.than), stage)
    return f"{factor.text}, {where}" if factor is not None else ""
