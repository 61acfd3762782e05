"""What the tables show, as JSON for other programs; the whole record of a run is its `results.json`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from ladder.records.run import Results
from reports.facts.bottleneck import advice_on
from reports.facts.summary import Row, rows
from reports.facts.time_breakdown import profiled
from reports.facts.warnings import notices
from reports.terminal.explain import find

Data = TypeVar("Data")


def show(data: Data, print_table: Callable[[Data], None], *, as_json: bool) -> int:
    """Print data by this function, or as JSON; returns the exit status 0."""
    print_json(data) if as_json else print_table(data)
    return 0


def print_json(data: Any) -> None:
    """Print plain data, records, or a list of named tuples; in ASCII, so that no terminal changes it."""
    if isinstance(data, list):
        data = [one._asdict() if hasattr(one, "_asdict") else one for one in data]
    json.dump(msgspec.to_builtins(data), sys.stdout, indent=2)
    sys.stdout.write("\n")


def run_facts(results: Results) -> dict[str, Any]:
    """The problem, a row for every stage, and the notices; times are null for a stage without one."""
    return {
        "problem": results.problem,
        "stages": [_row(row) for row in rows(results)],
        "notices": [notice.text for notice in notices(results)],
    }


def _row(row: Row) -> dict[str, Any]:
    plain = (
        "name", "title", "precision", "is_reference", "status", "verdict", "epoch_s", "step_us", "launches_per_step",
        "times_floor", "times_cheat_limit", "gpu_memory_mib", "prepare_s", "test_accuracy", "throttled",
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
        "step_us": stage.timing.step_us if stage.timing else None,
        "split": one.profile.split if one else None,
        "kernels": one.profile.kernels if one else [],
        "bound": advice.bound,
        "next": advice.next,
    }
