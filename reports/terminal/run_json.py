"""What the screens of a run and of `explain` show, as plain data for `as_json`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ladder.records.run import Results
from reports.facts.energy import to_accuracy
from reports.facts.run_table import Row, title_of
from reports.facts.times import median_us
from reports.terminal.explain import found_stage
from reports.views.run_view import run_view
from reports.views.rung_view import rung_view


def run_facts(results: Results) -> dict[str, Any]:
    """The problem, a row for every stage, and the notices; times are null for a stage without one."""
    run = run_view(results)
    rows = [_row_data(row, results.settings.target_accuracy) for row in run.rows]
    return {"problem": results.problem, "stages": rows, "notices": run.notices}


def _row_data(row: Row, target: float | None) -> dict[str, Any]:
    stage, parent, lead = row.stage, row.versus_parent, row.lead
    return {
        "name": stage.name,
        "is_reference": row.is_reference,
        "title": title_of(stage),
        "precision": stage.precision,
        "from": stage.below,
        "step_us": row.step_us,
        "throttled": row.throttled,
        "network_us": row.network_us,
        "learned_best": row.learned_best,
        "times_from": parent.times if parent else None,
        "times_from_is_noise": parent.is_noise if parent else None,
        "times_reference": lead.ratio.times if lead else None,
        "status": stage.status,
        "verdict": row.verdict,
        "checks_not_made": stage.not_made,
        "reference": lead.reference.name if lead else None,
        "energy": stage.energy,
        "to_accuracy": to_accuracy(stage, target),
        "test_accuracy": row.test_accuracy,
        "epoch_s": row.epoch_s,
        "launches_per_step": row.launches_per_step,
        "times_floor": row.times_floor,
        "times_cheat_limit": row.times_cheat_limit,
        "gpu_memory_mib": row.gpu_memory_mib,
        "prepare_s": row.prepare_s,
    }


def explanation_facts(results: Results, name: str, run: Path) -> dict[str, Any]:
    """Where the time of a stage goes; raises ReportError if it is not in the run or cannot be explained."""
    stage = found_stage(results, name)
    rung = rung_view(stage, results)
    profiled, advice = rung.profiled, rung.advice
    return {
        "run": str(run),
        "stage": name,
        "from": stage.below,
        "changed": stage.changed,
        "doc": stage.doc,
        "step_us": median_us(stage),
        "split": profiled.profile.split if profiled else None,
        "kernels": profiled.profile.kernels if profiled else [],
        "recipe": stage.recipe,
        "bound": advice.bound if advice is not None else "",
        "next": advice.next if advice is not None else "",
    }
