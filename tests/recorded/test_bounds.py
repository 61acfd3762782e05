"""No recorded bound exceeds the time of its step: such a bound, or such a time, is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from ladder.records.run import load

RUNS = sorted((Path(__file__).parents[2] / "results" / "reference").rglob("results.json"))
NOISE = 1.02  # a median may lie this much below a floor: clocks differ a little between limits and stages


@pytest.mark.parametrize("path", RUNS, ids=lambda path: path.parent.name)
def test_no_bound_exceeds_the_measured_time(path: Path) -> None:
    for stage in load(path).stages:
        if stage.timing is not None and stage.bounds is not None:
            step_us = stage.timing.step_us
            assert stage.bounds.cheat_limit_us <= step_us, stage.name
            assert (stage.bounds.design_floor_us or 0.0) <= NOISE * step_us, stage.name
