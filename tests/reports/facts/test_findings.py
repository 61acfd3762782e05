"""What documents say of a rung: told in today's words, without places for numbers, and as the records judge it."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest
from msgspec.structs import replace

from ladder.records.run import StageDoc, StageResult, all_results, load
from reports.facts.findings import PLACE, found_of, found_today
from reports.facts.ratios import Ratio
from reports.facts.verdict import gains
from stages.registry import load_all
from tests.reports import sample

FOUND = {name: entry.doc.found for name, entry in load_all().items() if entry.doc.found}
MOST_WORDS, MOST_SENTENCES = 75, 3
PAGES = (Path("README.md"), Path("docs/essay.md"), *sorted(Path("docs/climb").glob("*.md")))
MAIN, WIDE = "784-10", "784-4096-4096-4096-10"
CLAUSES = re.compile(r"(?<=[.;:?!])\s+|, (?=and |but |as |so |since |\d{3}-)")
NETWORKS = re.compile(r"784(?:-\d+(?:x\d+)?)*-10|softmax regression|the small network")
ELSEWHERE = re.compile(r"batch(es)? of|images|\bstudy\b|\btrial\b|\bwas to\b|`")  # no claim on the recorded run
CLAIMS = {  # the first that matches counts
    "noise": r"no (measurable )?gain\b|gains? ((next to )?nothing|hardly)|no recorded|nothing (is gained|is left)|"
    r"(within|nothing beyond) noise|to gain anything|no faster",
    "loss": r"\blos(e|es|t)\b|\btakes?\b[^,]*\blonger\b|\bslower\b(?! than (predicted|expected))",
    "gain": r"\b(gain(s|ed)?|times as fast)\b|half as fast again|\bfaster\b(?! than (predicted|expected))",
}


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
    assert len(re.findall(r"[.?!](?: |$)", found)) <= MOST_SENTENCES


@cache
def recorded_verdicts() -> Mapping[tuple[str, str], set[str]]:
    """What the recorded runs say of each rung beside its parent, by its name and the network."""
    found: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    for path in all_results(Path("results/reference"), "*/*"):
        run = load(path)
        for stage, gain in gains(run):
            found[stage.name, run.problem.network].add(judged(gain))
    return found


def judged(gain: Ratio) -> str:
    return "noise" if gain.is_noise else "gain" if gain.times > 1 else "loss"


def claims(text: str, rung: str = "", network: str = MAIN) -> Iterator[tuple[str, str, str, str]]:
    """Each clause that claims something of a rung beside its parent: the rung, the network, the verdict, the clause.

    Without a rung the clause must begin to speak of one by its name, as a page does: `bf16` gains.
    """
    for clause in CLAUSES.split(" ".join(re.sub(r"(?s)```.*?```|<!--.*?-->", "", text).split())):
        verdict = next((name for name, words in CLAIMS.items() if re.search(words, clause)), "")
        told = re.search(r"`([a-z0-9-]+)` (?:gain(?:s|ed)|takes|los(?:es|t)|is|was) ", clause)
        named = [whole_name(one) for one in NETWORKS.findall(clause)]
        if rung and (ELSEWHERE.search(clause) or not named):
            continue
        if verdict and (rung or told) and not clause.endswith("?"):
            yield from ((rung or (told[1] if told else ""), one, verdict, clause) for one in named or [network])


def whole_name(network: str) -> str:
    """A network's name as records have it, such as `784-128-128-10` of `784-128x2-10`."""
    known = re.sub(r"(\d+)x(\d+)", lambda layers: "-".join([layers[1]] * int(layers[2])), network)
    return known if known.startswith("784") else MAIN


def contradictions(text: str, rung: str = "", network: str = MAIN) -> list[str]:
    """The clauses that no recorded run of the rung and the network bears out, though one judges it."""
    known = recorded_verdicts()
    return [
        f"{name} in {where}: {told}; recorded: {known[name, where]}"
        for name, where, verdict, told in claims(text, rung, network)
        if known.get((name, where)) and verdict not in known[name, where]
    ]


@pytest.mark.parametrize("name", FOUND)
def test_what_was_found_is_what_the_records_say(name: str) -> None:
    assert contradictions(FOUND[name], name) == []


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_a_page_says_of_a_rung_what_the_records_say(page: Path) -> None:
    assert contradictions(page.read_text(encoding="utf-8"), network=WIDE if page.name.startswith("10") else MAIN) == []


def test_a_contradiction_is_found_and_many_clauses_are_read() -> None:
    assert contradictions("`cuda-graph` gains nothing beyond noise. `cublas` is 1.2 times as fast. It waits.") == [
        "cuda-graph in 784-10: `cuda-graph` gains nothing beyond noise.; recorded: {'gain'}",
        "cublas in 784-10: `cublas` is 1.2 times as fast.; recorded: {'noise'}",
    ]
    assert len(contradictions("784-256-10 loses a third, and 784-4096x3-10 gains.", "fp16")) == 2
    assert len([one for name, found in FOUND.items() for one in claims(found, name)]) > 30
