"""Compute the bounds of recorded runs again, after the cost model has changed: `python -m tools.recompute_bounds`.

Every `results.json` below the folder (default: results/reference) gets new bounds, from the limits and profiles that it
holds, with the same code that a run uses. Nothing else changes. A line for each stage tells if its bound exceeds its
measured time; the exit code is then 1. Render the reports afterwards.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from common.files import atomic_write
from common.problem import Problem
from ladder.machine.limits import bounds_of
from ladder.records.run import ProblemRecord, Results, StageResult, load
from ladder.verify.gates import SPEED_CHECK
from stages.registry import load_all

FOLDER = Path(__file__).resolve().parent.parent / "results" / "reference"
EARLIER_CHECK = "physical floor, as a share of the step's time"  # its name until 2026-11-23
NOISE = 1.02  # a median may lie this much below a floor: clocks differ a little between limits and stages


def main(folder: Path) -> int:
    """Rewrite all files, print what is impossible, and return the exit code."""
    files = sorted(folder.rglob("results.json"))
    problems = [problem for file in files for problem in recompute(file)]
    print(f"{len(files)} files; bounds above the measured time: {len(problems)}")
    return 1 if problems else 0


def recompute(file: Path) -> Iterator[str]:
    """Rewrite one file; yields, and prints, a line for each bound that exceeds a measured time."""
    results, raw = load(file), msgspec.json.decode(file.read_bytes())
    for stage, recorded in zip(results.stages, raw["stages"], strict=True):
        update(results, stage, recorded)
    atomic_write(file, msgspec.json.encode(raw) + b"\n")
    for stage in load(file).stages:
        if stage.timing is None or stage.bounds is None:
            continue
        step_us = stage.timing.step_us
        for name, bound in (("cheat limit", stage.bounds.cheat_limit_us), ("floor", stage.bounds.design_floor_us)):
            if bound is not None and bound > step_us * (NOISE if name == "floor" else 1.0):
                line = f"{file}: {stage.name}: {name} {bound:.3f} us, measured {step_us:.3f} us"
                print(line)
                yield line


def update(results: Results, stage: StageResult, recorded: dict[str, Any]) -> None:
    """Put a stage's new bounds into its record, and the share of the time that the check shows."""
    entry = load_all().get(stage.name)
    if results.limits is None or stage.timing is None or stage.bounds is None or entry is None:
        return
    steps = stage.timing.steps_per_epoch
    bounds = bounds_of(results.limits, entry.stage, problem_of(results.problem), steps, stage.profile)
    if bounds is None:
        return
    recorded["floor"] = msgspec.to_builtins(bounds)
    for check in recorded["checks"]:
        if check["what"] in (EARLIER_CHECK, SPEED_CHECK):
            check.update(what=SPEED_CHECK, error=bounds.cheat_limit_us / stage.timing.step_us)


def problem_of(record: ProblemRecord) -> Problem:
    """The problem of a recorded run, as far as its cost depends on it."""
    hidden = tuple(record.hidden)
    return Problem(inputs=record.inputs, classes=record.classes, hidden=hidden, batch_size=record.batch_size)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, nargs="?", default=FOLDER, help="searched for results.json files")
    sys.exit(main(parser.parse_args().folder))
