"""What was recorded at which commit on which machine, and how many of its rows ran the code of today's stages."""

from __future__ import annotations

from collections.abc import Mapping
from operator import itemgetter
from pathlib import Path

from ladder.records.run import StageCode, all_results, load
from reports.facts import numbers
from reports.facts.grouped import grouped
from reports.facts.provenance import commit, machine_name
from reports.markdown.leads import COMMIT_DIGITS
from reports.markdown.own_models import own_models
from reports.writers.markdown import cell, code, table

OLDER = "older hashes"  # which nobody can compare with today's
STUDIES = "studies"  # the folder beside a machine's networks


def recorded_code_block(reference: Path, today: Mapping[str, StageCode]) -> str:
    """A line for each machine and commit, the newest first; a row is a stage that passed in one run.

    `today` has the hashes of every stage's code.
    """
    runs = [(file.parent.relative_to(reference).parts, load(file)) for file in all_results(reference, "**")]
    runs.sort(key=lambda run: run[1].created, reverse=True)
    schemes = {now.scheme for now in today.values()}
    lines = []
    for (machine, at), group in grouped(((machine_name(run), commit(run)), (path, run)) for path, run in runs).items():
        by_name = sorted(group, key=itemgetter(0))
        names = dict.fromkeys(code(path[2]) if STUDIES in path else run.problem.network for path, run in by_name)
        rows = [stage for _, run in by_name for stage in run.stages if stage.status == "passed"]
        other = [code(row.name) for row in rows if row.code != today.get(row.name)]
        same = "none" if other else "all"
        if not schemes & {row.code.scheme for row in rows if row.code} and schemes:
            same = OLDER
        elif 0 < len(other) < len(rows):
            same = f"{len(rows) - len(other):,}, not {numbers.listing(dict.fromkeys(other))}"
        lines.append((cell(machine), at[:COMMIT_DIGITS], ", ".join(names), f"{len(rows):,}", same))
    models = own_models(reference).values()
    for (machine, at), own in grouped(((machine_name(run), commit(run)), run) for _, run in models).items():
        passed = sum(rung.status == "passed" for run in own for rung in run.rungs)
        files = ", ".join(code(f"torch {run.model.file}") for run in own)
        lines.append((cell(machine), at[:COMMIT_DIGITS], files, f"{passed:,}", "not recorded"))
    return table(("Machine", "Commit", "What", "Rows", "Same code today"), lines, right=[False] * 3 + [True, False])
