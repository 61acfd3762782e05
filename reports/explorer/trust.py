"""The view of trust: every check of every stage as a cell, by the kind of check."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from ladder.records.run import Check, Results, StageResult
from reports.explorer.html import template
from reports.facts import numbers
from reports.facts.summary import name_of, reason, table_order

NEAR = 0.1  # share of the limit; a passed check with a larger error is drawn darker


@dataclass(frozen=True)
class Cell:
    """A check as a cell: its name, its class in the style sheet, its error and its limit."""

    what: str
    look: str  # `far`, `near`, `broken` or `open`
    error: str
    limit: str
    verdict: str  # `passed`, `failed`, or why it was not judged

    @property
    def words(self) -> str:
        """The check in a sentence, to show beside its cell."""
        if self.look == "open":
            return f"{self.what}: {self.verdict}"
        return f"{self.what}: {self.error} of {self.limit}, {self.verdict}"


def cell(check: Check) -> Cell:
    """A check's cell; `near` if a passed error is more than a tenth of its limit, `open` if it was not judged."""
    error, limit = numbers.error(check.error), numbers.error(check.limit)
    noted = f" ({check.note})" if check.note else ""
    if not check.passed:
        return Cell(check.what, "broken", error, limit, f"failed{noted}")
    if not check.judged:
        return Cell(check.what, "open", error, limit, f"not judged: {check.note}" if check.note else "not judged")
    share = (check.error or 0.0) / check.limit if check.limit else 0.0
    return Cell(check.what, "near" if share > NEAR else "far", error, limit, f"passed{noted}")


def kind(check: Check) -> str:
    """The kind of a check, without the tensor or the step that it looked at: `first update`."""
    return check.what.partition(",")[0]


def trust_view(results: Results) -> str:
    """The view as HTML."""
    stages = table_order(results)
    kinds = list(dict.fromkeys(kind(check) for stage in stages for check in stage.checks))
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
    has_open = any(one.look == "open" for row in rows for group in row["groups"] for one in group["cells"])
    has_none = any(not row["reason"] and not group["cells"] for row in rows for group in row["groups"])
    near = numbers.share(NEAR)
    return template(
        "trust.html", kinds=kinds, rows=rows, verdict=verdict, near=near, has_open=has_open, has_none=has_none
    )


def _group(stage: StageResult, name: str) -> dict[str, Any]:
    """A stage's checks of one kind, and in words how many passed and how near the worst is to its limit."""
    found = [check for check in stage.checks if kind(check) == name]
    if not found:
        return {"cells": [], "words": "not checked"}
    judged = [check for check in found if check.judged or not check.passed]
    shares = [check.error / check.limit for check in judged if check.error is not None and check.limit]
    worst = max(shares, default=math.nan)
    words = f"{sum(check.passed for check in judged)} of {len(judged)} passed"
    if len(judged) < len(found):
        words += f", {len(found) - len(judged)} not judged"
    return {
        "cells": [cell(check) for check in found],
        "words": f"{words}, the largest error is {numbers.share(worst)} of its limit" if shares else words,
    }
