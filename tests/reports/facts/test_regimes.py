from __future__ import annotations

from pathlib import Path

import pytest

from ladder.records.run import load
from reports.facts.regimes import IN_WORDS, MOST_LETTERS, change_in_words, regime
from stages.registry import ABLATIONS, load_all
from tests.reports import sample

RECORDED = sorted(Path("results/reference").glob("*/*/results.json"))


def test_every_rung_of_the_ladder_has_short_words() -> None:
    rungs = {entry.stage.name for entry in load_all().values() if entry.stage.group not in ("reference", *ABLATIONS)}
    assert set(IN_WORDS) == rungs
    assert all(len(words) <= MOST_LETTERS for _, words in IN_WORDS.values())


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.parent.name)
def test_names_and_recorded_profiles_agree_on_the_regime(path: Path) -> None:
    seen = {stage.name: regime(stage) for stage in load(path).stages if stage.profile and stage.name in IN_WORDS}
    assert seen == {name: IN_WORDS[name][0] for name in seen}


def test_an_unknown_rung_shows_its_title() -> None:
    stage = next(one for one in sample.unprofiled_results().stages if one.name == "bf16-gemm")
    assert change_in_words(stage) == "Tensor cores"
    assert regime(stage) == "host"
