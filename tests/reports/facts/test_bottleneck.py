"""Which part of a step is named, and what its advice must not say; tests/golden/advice.txt has the words."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from msgspec.structs import replace

from common.vocabulary import ABLATIONS
from ladder.records.run import MOST_LETTERS, all_results, load
from reports.facts.bottleneck import next_step
from reports.facts.launch_regimes import regime
from reports.facts.time_breakdown import all_profiled
from stages.registry import load_all
from tests.reports.advice import RECORDED


def test_no_recorded_stage_is_advised_what_its_design_rules_out() -> None:
    seen = 0
    for path in all_results(RECORDED.parent, "**"):
        run = load(path)
        for one in all_profiled(run):
            text, where, profile = next_step(run, one).next, f"{path.parent.name}, {one.stage.name}", one.profile
            seen += 1
            assert text, where
            slowest = max(profile.kernels, key=lambda kernel: kernel.us_per_step)
            if profile.launches_per_step < 1 or profile.graph_launches_per_epoch:
                assert "Capture" not in text, where
            if profile.kernels_per_step < 1:
                assert not re.search("neighbour|Split its work|registers or", text), where
            if slowest.cluster >= 16:
                assert "Split its work" not in text, where
            if re.match("cutlass|sm80|nvjet|triton|gemm_fusion", slowest.name):
                assert not re.search("Split its work|Use fewer registers", text), where
            if any(copy.direction == "host to device" and copy.per_epoch > 20 for copy in profile.copies):
                assert "Capture" not in text, where
            if profile.allocations_per_epoch.get("cudaMalloc", 0) > 20:
                assert "Capture" not in text, where
    assert seen > 200


def test_a_persistent_step_is_told_as_a_multiple_of_one_exchange() -> None:
    run = load(RECORDED / "logistic")
    texts = {one.stage.name: next_step(run, one).bound for one in all_profiled(run)}
    assert re.search(
        r"a step takes 4\.\d times as long as one hop between its blocks \(0\.25\d us\)", texts["persistent-cluster"]
    )


RUNS = sorted(Path("results/reference").glob("*/*/results.json.gz"))


def test_every_rung_of_the_ladder_has_short_words() -> None:
    stages = [entry.stage for entry in load_all().values()]
    assert [one.name for one in stages if not one.words and one.group not in ("reference", *ABLATIONS)] == []
    assert [one.name for one in stages if len(one.words) > MOST_LETTERS] == []


@pytest.mark.parametrize("path", RUNS, ids=lambda path: path.parent.name)
def test_declared_regimes_are_those_of_recorded_profiles(path: Path) -> None:
    run, known = load(path), {name: entry.stage for name, entry in load_all().items()}
    profiled = [stage for stage in run.stages if stage.profile and stage.name in known and stage.group != "reference"]
    for stage in profiled:
        assert known[stage.name].regime == regime(replace(stage, regime=None)), stage.name


def test_a_run_from_before_recorded_words_gets_those_of_its_time() -> None:
    older = next(path for path in RUNS if b'"words"' not in path.read_bytes())
    assert any(stage.words for stage in load(older).stages)
