"""What the screens of a run and of `explain` show, as plain data for `as_json`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ladder.records.run import Results
from reports.facts.bottleneck import advice_on
from reports.facts.summary import Row, rows
from reports.facts.time_breakdown import profiled
from reports.facts.times import median_us
from reports.facts.warnings import notices
from reports.terminal.explain import find


def run_facts(results: Results) -> dict[str, Any]:
    """The problem, a row for every stage, and the notices; times are null for a stage without one."""
    return {
        "problem": results.problem,
        "stages": [_row(row) for row in rows(results)],
        "notices": [notice.text for notice in notices(results)],
    }


def _row(row: Row) -> dict[str, Any]:
    plain = (
        "name", "title", "precision", "is_reference", "status", "verdict", "checks_not_made", "epoch_s", "step_us",
        "launches_per_step", "times_floor", "times_cheat_limit", "gpu_memory_mib", "prepare_s", "test_accuracy",
        "throttled",
    )  # fmt: skip
    parent, lead = row.versus_parent, row.lead
    return {
        **{name: getattr(row, name) for name in plain},
        "from": row.parent or None,
        "times_from": parent.times if parent else None,
        "times_from_is_noise": parent.is_noise if parent else None,
        "reference": lead.reference.name if lead else None,
        "times_reference": lead.ratio.times if lead else None,
    }


def explanation_facts(results: Results, name: str, run: Path) -> dict[str, Any]:
    """Where the time of a stage goes; raises ExplainError if it is not in the run or cannot be explained."""
    stage = find(results, name)
    one = profiled(stage)
    advice = advice_on(results, stage)
    return {
        "run": str(run),
        "stage": name,
        "from": stage.below,
        "changed": stage.changed,
        "doc": stage.doc,
        "step_us": median_us(stage),
        "split": one.profile.split if one else None,
        "kernels": one.profile.kernels if one else [],
        "bound": advice.bound,
        "next": advice.next,
    }
