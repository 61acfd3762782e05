from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from ladder.records.run import StageDoc, StageResult, save
from reports.facts.found import UNKNOWN, found_of
from stages.registry import load_all
from tests.reports import sample


def stage(found: str, name: str = "async") -> StageResult:
    known = next(one for one in sample.results().stages if one.name == name)
    return replace(known, doc=StageDoc("w", "c", "e", found))


def test_numbers_come_from_the_recorded_run_of_the_network(tmp_path: Path) -> None:
    (tmp_path / "h200" / "hidden-256").mkdir(parents=True)
    save(sample.results(), tmp_path / "h200" / "hidden-256" / "results.json")
    text = "{784-256-10} us, not {naive 784-256-10}: {x 784-256-10} x; {784-10}, {gone 784-256-10}, {other}."
    assert found_of(stage(text), tmp_path) == f"42.7 us, not 85.5: 2.00 x; {UNKNOWN}, {UNKNOWN}, {{other}}."
    assert found_of(stage("No number."), tmp_path) == "No number."


def test_a_rung_of_the_cpu_s_ladder_takes_no_number_of_a_gpu(tmp_path: Path) -> None:
    (tmp_path / "h200" / "hidden-256").mkdir(parents=True)
    save(sample.results(), tmp_path / "h200" / "hidden-256" / "results.json")
    assert found_of(replace(stage("{784-256-10}"), group="cpu"), tmp_path) == UNKNOWN


@pytest.mark.parametrize("name", [name for name, entry in load_all().items() if "{" in entry.doc.found])
def test_every_number_of_ours_is_recorded(name: str) -> None:
    entry = load_all()[name]
    own = replace(stage(entry.doc.found), name=name, group=entry.stage.group, below=entry.stage.below)
    text = found_of(own)
    assert UNKNOWN not in text
    assert "{" not in text
