from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from ladder.records.run import MOST_LETTERS, load
from reports.facts.launch_regimes import change_in_words, regime
from stages.registry import ABLATIONS, load_all
from tests.reports import sample

RECORDED = sorted(Path("results/reference").glob("*/*/results.json"))


def test_every_rung_of_the_ladder_has_short_words() -> None:
    stages = [entry.stage for entry in load_all().values()]
    assert [one.name for one in stages if not one.words and one.group not in ("reference", *ABLATIONS)] == []
    assert [one.name for one in stages if len(one.words) > MOST_LETTERS] == []


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.parent.name)
def test_declared_regimes_are_those_of_recorded_profiles(path: Path) -> None:
    run, known = load(path), {name: entry.stage for name, entry in load_all().items()}
    profiled = [stage for stage in run.stages if stage.profile and stage.name in known and stage.group != "reference"]
    for stage in profiled:
        assert known[stage.name].regime == regime(replace(stage, regime=None)), stage.name


def test_a_run_from_before_recorded_words_gets_those_of_its_time() -> None:
    raw = msgspec.json.decode(RECORDED[0].read_bytes())
    assert not any("words" in stage for stage in raw["stages"])
    assert any(stage.words for stage in load(RECORDED[0]).stages)


def test_an_unknown_rung_shows_its_title() -> None:
    stage = next(one for one in sample.unprofiled_results().stages if one.name == "bf16-gemm")
    assert change_in_words(stage) == "Tensor cores"
    assert regime(stage) == "host"
