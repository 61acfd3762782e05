"""The table of published numbers: theirs from the studies' files, ours from recorded studies only."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from ladder.records.study import Published, Study
from ladder.study.study_file import read_study
from reports.facts.study_points import StudyResults
from reports.markdown.readme import published_block
from tests.reports.study_sample import study_results

ROOT = Path(__file__).parents[3]


def with_published(*published: Published) -> StudyResults:
    results = study_results([64, 128, 256])
    return StudyResults(replace(results.study, published=list(published)), results.runs)


def number(**changes: object) -> Published:
    return Published(**{"who": "them", "what": "it", "value": "750 ms", "gpu": "H100", **changes})  # type: ignore[arg-type]


def ours(one: Published) -> str:
    results = with_published(one)
    (line,) = published_block([results.study], [results]).splitlines()[2:]
    return line.split(" | ")[-1].removesuffix(" |")


def test_the_studies_name_points_of_theirs() -> None:
    for plan in (read_study(path, "", "") for path in sorted((ROOT / "experiments").glob("*.toml"))):
        names = {point.name for point in plan.points}
        for one in plan.published:
            assert not one.measure or one.at in names, f"{plan.name}: no point {one.at}"
            assert (one.measure == "times") == bool(one.than)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "-"),
        ({"measure": "epoch", "at": "hidden-64"}, "20.7 ms/epoch (bf16-gemm in bf16 on NVIDIA H200)"),
        ({"measure": "epoch", "at": "hidden-64", "of": "naive"}, "294 ms/epoch (naive in float32 on NVIDIA H200)"),
        ({"measure": "step", "at": "hidden-64", "of": "naive"}, "157 us/step (naive in float32 on NVIDIA H200)"),
        (
            {"measure": "times", "at": "hidden-64", "than": "torch-amp"},
            "8.14x (3.61-18.36), bf16-gemm in bf16 on NVIDIA H200",
        ),
        ({"measure": "epoch", "at": "hidden-128", "of": "naive"}, "not recorded yet"),  # it crashed there
        ({"measure": "epoch", "at": "hidden-256"}, "not recorded yet"),  # a point that was skipped
        ({"measure": "times", "at": "hidden-64", "than": "torch-graph"}, "not recorded yet"),
    ],
)
def test_ours_stands_beside_theirs(changes: dict[str, object], said: str) -> None:
    assert ours(number(**changes)) == said
    study = with_published(number(**changes)).study
    alone = published_block([study], []).splitlines()[2]
    assert alone == f"| `made-up` | them | it | 750 ms | H100 | {'not recorded yet' if changes else '-'} |"
    assert published_block([replace(study, published=[])], []) == ""


@pytest.mark.parametrize("measure", ["epoch", "step"])
def test_an_epoch_that_was_cut_says_so(measure: str) -> None:
    results = with_published(number(measure=measure, at="hidden-64"))
    runs = {name: replace(run, problem=replace(run.problem, max_steps=128)) for name, run in results.runs.items()}
    assert ", 128 steps per epoch)" in published_block([results.study], [StudyResults(results.study, runs)])


def test_nothing_of_ours_without_a_record_and_no_table_without_theirs() -> None:
    study: Study = with_published(number(measure="epoch", at="hidden-64")).study
    assert (
        published_block([study], []).splitlines()[2] == "| `made-up` | them | it | 750 ms | H100 | not recorded yet |"
    )
    assert published_block([replace(study, published=[])], []) == ""
