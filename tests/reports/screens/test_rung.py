"""A stage in full, in short and on its page; tests/golden has the exact text of two."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ladder.records.run import load, save
from reports.screens.rung import rung_screen
from tests.reports import sample
from tests.reports.reporting import explanation
from tests.reports.terminal.screens import too_wide

RECORDED = Path(__file__).parents[3] / "results" / "reference" / "h200"


@pytest.mark.parametrize("width", [40, 120])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    assert too_wide(explanation(sample.results(), "torch-eager", width), width) == []
    run = load(RECORDED / "logistic")
    for stage in run.stages:
        if stage.profile is not None:
            assert too_wide(explanation(run, stage.name, width), width) == []


def test_a_recorded_run_is_named_as_one_and_any_run_is_named(tmp_path: Path) -> None:
    def told(run: Path, name: str) -> str:
        return explanation(load(run), name, 200, run, RECORDED.parent)

    recorded = told(RECORDED / "logistic", "cuda-graph")
    assert "\nRecorded on another machine: NVIDIA H200.\n" in recorded
    assert "results/reference/h200/logistic: 784-10 (softmax regression) on MNIST" in recorded
    assert re.search(r"cuda-graph \(one launch per epoch\): 1\d\.\d us/step, \d\.\d+x as fast as cudnn-soft", recorded)
    assert "GraphEpoch" not in recorded.split("Why:")[0]
    assert "Predicted: 15 to 20 us; hit\n" in recorded
    for name, launch in (("grid-messages", "MessagesEpoch"), ("large-batch", "HalvesEpoch")):
        alone = told(RECORDED.parent / "h100-80gb-hbm3/hidden-256", name)
        assert "The parts of its step; the launch does the rest itself\n" in alone
        assert launch in alone
        assert "CublasGemm" not in alone
    save(sample.results(), tmp_path / "results.json")
    own = told(tmp_path, "naive")
    assert "Recorded" not in own
    assert f"{tmp_path.name}: 784-256-10 (one hidden layer of 256)" in own.splitlines()[1]


def test_other_programs_get_what_the_author_found_without_places_for_numbers() -> None:
    for run in (RECORDED / "logistic", RECORDED.parent / "h100-80gb-hbm3/logistic"):
        doc = rung_screen(load(run), "cuda-graph", run).facts["doc"]
        assert doc.found
        assert "{" not in doc.found
