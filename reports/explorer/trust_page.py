"""The view of trust: every check of every stage as a cell, by the kind of check."""

from __future__ import annotations

import math
from typing import Any

from ladder.records.run import Check, Results, StageResult
from reports.facts import numbers
from reports.facts.run_table import name_of, reason, table_order
from reports.screens.rung import judged
from reports.writers.html import template

NEAR = 0.1  # share of the limit; a passed check with a larger error is drawn darker


def kind_of_check(check: Check) -> str:
    """The kind of a check, without the tensor or the step that it looked at: `first update`."""
    return check.what.partition(",")[0]


def trust_view(results: Results) -> str:
    """The view as HTML."""
    stages = table_order(results)
    kinds = list(dict.fromkeys(kind_of_check(check) for stage in stages for check in stage.checks))
    checks = [check for stage in stages for check in stage.checks if check.judged or not check.passed]
    broken = sum(not check.passed for check in checks)
    rows: list[dict[str, Any]] = [
        {
            "name": stage.name,
            "shown": name_of(stage),
            "status": stage.status,
            "reason": "" if stage.status == "passed" else reason(stage),
            "groups": [_group(stage, name) for name in kinds],
        }
        for stage in stages
    ]
    verdict = f"{len(checks) - broken:,} of {numbers.count(len(checks), 'check')} passed"
    has_open = any(cell["look"] == "open" for row in rows for group in row["groups"] for cell in group["cells"])
    has_none = any(not row["reason"] and not group["cells"] for row in rows for group in row["groups"])
    near = numbers.share(NEAR)
    return template(
        "trust.html", kinds=kinds, rows=rows, verdict=verdict, near=near, has_open=has_open, has_none=has_none
    )


def _group(stage: StageResult, name: str) -> dict[str, Any]:
    """A stage's checks of one kind, and in words how many passed and how near the worst is to its limit."""
    checks = [check for check in stage.checks if kind_of_check(check) == name]
    if not checks:
        return {"cells": [], "words": "not checked"}
    judged = [check for check in checks if check.judged or not check.passed]
    shares = [check.error / check.limit for check in judged if check.error is not None and check.limit]
    worst = max(shares, default=math.nan)
    words = f"{sum(check.passed for check in judged)} of {len(judged)} passed"
    if len(judged) < len(checks):
        words += f", {len(checks) - len(judged)} not judged"
    return {
        "cells": [cell(check) for check in checks],
        "words": f"{words}, the largest error is {numbers.share(worst)} of its limit" if shares else words,
    }


def cell(check: Check) -> dict[str, str]:
    """A check's cell: `near` if a passed error is more than a tenth of its limit, `open` if it was not judged."""
    verdict = judged(check)
    if check.passed and not check.judged:
        return {"look": "open", "words": f"{check.what}: {verdict}"}
    share = (check.error or 0.0) / check.limit if check.limit else 0.0
    look = "broken" if not check.passed else "near" if share > NEAR else "far"
    error, limit = numbers.error(check.error), numbers.error(check.limit)
    return {"look": look, "words": f"{check.what}: {error} of {limit}, {verdict}"}
