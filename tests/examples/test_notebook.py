"""The code cells of the example notebook run, in order, and give the recorded run's numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ladder.records.run import load

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "examples" / "read_results.ipynb"


def executed(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The names that the cells leave behind, run from the notebook's folder."""
    monkeypatch.chdir(NOTEBOOK.parent)
    names: dict[str, Any] = {}
    for cell in json.loads(NOTEBOOK.read_text())["cells"]:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), names)
    return names


def test_its_tables_are_those_of_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pandas")
    names = executed(monkeypatch)
    stages = {stage.name: stage for stage in load(names["RUN"]).stages}
    times = {name: stage.timing for name, stage in stages.items()}
    for name, row in names["climb"].iterrows():
        own, parent = times[name], times.get(stages[name].below or "")
        assert own is not None
        assert row["us/step"] == pytest.approx(own.step_us)
        if parent is not None:
            assert row["x of from"] == pytest.approx(parent.step_us / own.step_us)
    assert set(names["spread"].index) >= set(names["climb"].index)
    for name, row in names["spread"].loc[names["climb"].index].iterrows():
        own = times[name]
        assert own is not None
        assert row["median"] == pytest.approx(own.step_us)
        assert row["count"] == len(own.runs_s)
    for name, row in names["split"].iterrows():
        assert row.sum() == pytest.approx(next(p for p in stages[name].profiles if p.tool == "cupti").plain_step_us)


def test_it_is_kept_without_outputs() -> None:
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    assert all(not cell["outputs"] for cell in cells if cell["cell_type"] == "code")
