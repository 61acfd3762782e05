"""What the author of a stage found is told in today's words, without places for numbers."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from ladder.records.run import StageDoc, StageResult
from reports.facts.findings import PLACE, found_of, found_today
from stages.registry import load_all
from tests.reports import sample

FOUND = {name: entry.doc.found for name, entry in load_all().items() if entry.doc.found}
MOST_WORDS = 75


def recorded(found: str, name: str) -> StageResult:
    known = next(one for one in sample.results().stages if one.name == "async")
    return replace(known, name=name, doc=StageDoc("w", "c", "e", found))


def test_a_stage_of_this_checkout_has_its_words_of_today() -> None:
    assert found_today() == FOUND
    assert found_of(recorded("{784-10} us, a miss.", "async")) == FOUND["async"]
    assert found_of(recorded("", "async")) == FOUND["async"]


def test_any_other_stage_has_its_recorded_words_but_for_sentences_with_places() -> None:
    older = "Recorded: {784-10} us, {to async 784-128x3-10}. It waits. {x 784-10} times as fast. Hosts differ."
    assert found_of(recorded(older, "of-my-own")) == "It waits. Hosts differ."
    assert found_of(replace(recorded("", "of-my-own"), doc=None)) == ""


@pytest.mark.parametrize("name", FOUND)
def test_what_was_found_is_a_few_sentences_whose_numbers_stand_in_reports(name: str) -> None:
    found = FOUND[name]
    assert found.endswith(".")
    assert not PLACE.search(found)
    assert len(found.split()) <= MOST_WORDS
