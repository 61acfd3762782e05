"""Ablations: their blocks, and the counts that only they show."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from ladder.records.profile import CallUse, CopyUse, FirstCalls, Profile, Split
from ladder.records.run import Group, Results, StageResult, save
from ladder.records.study import Point, save_study
from reports.facts.ablations import ablation
from reports.facts.profiles import calls_in_words
from reports.facts.stage_facts import all_stage_facts
from reports.figures.run_figures import drawings
from reports.render import render_study
from reports.screens.ablations import ablation_blocks
from reports.screens.blocks import Sentences
from tests.reports import sample, study_sample
from tests.reports.profiles import own_kernels, profile
from tests.reports.reporting import report

PAIR = {"cudaFree": 1872.0, "cudaMalloc": 1872.0}
FIRST = FirstCalls({"cudaMalloc": 11, "cudaFree": 4}, {"cudaMalloc": 1872, "cudaFree": 1872})


def profiled(**changes: object) -> Profile:
    return msgspec.structs.replace(profile(Split(30.0, 4.0, 2.0, 8.0, 6.0), own_kernels()), **changes)


def rung(name: str, group: Group, below: str, title: str, found: Profile) -> StageResult:
    stage = next(stage for stage in sample.results().stages if stage.name == "async")
    return msgspec.structs.replace(
        stage, name=name, title=title, group=group, below=below, changed=f"{group}: X", profiles=[found]
    )


@pytest.fixture
def run() -> Results:
    copied = CopyUse("host to device", 468.0, 188e6, 10.0, 2.5)
    calls = [CallUse("cudaMalloc", 1872.0, 9.0), CallUse("cudaFree", 1872.0, 11.5), CallUse("cudaMemcpyAsync", 468, 7)]
    freeing = profiled(allocations_per_epoch=PAIR, first_calls=FIRST, calls=calls, syncs_per_epoch=468.0)
    rungs = [
        rung("alloc-cudamalloc", "memory", "naive", "By cudaMalloc", freeing),
        rung("alloc-arena", "memory", "alloc-cudamalloc", "Once", profiled(first_calls=FirstCalls({}, {}))),
        rung("pinned", "data", "naive", "From pinned memory", profiled(copies=[copied], calls=calls)),
        rung("resident-f32", "data", "pinned", "On the GPU", profiled()),
    ]
    whole = sample.results()
    return msgspec.structs.replace(whole, stages=[*rungs, *whole.stages])


def test_each_is_compared_with_the_rung_that_it_climbs_from(run: Results) -> None:
    ratios = {row.name: row.versus_parent.times for row in all_stage_facts(run) if row.versus_parent}
    assert ratios["alloc-cudamalloc"] == pytest.approx(2.0)  # naive takes twice as long in the sample
    assert ratios["alloc-arena"] == ratios["resident-f32"] == pytest.approx(1.0)
    assert calls_in_words({"cudaFree": 0.0, "cudaMalloc": 2.0}) == "cudaMalloc 2"


def test_each_group_has_a_figure_with_the_rung_that_it_climbs_from(run: Results) -> None:
    assert [one.stage.name for one in ablation(run, "data")] == ["naive", "pinned", "resident-f32"]
    drawn = drawings(run)
    assert {"memory.svg", "data_path.svg"} <= set(drawn)
    assert "`figures/memory.svg`" in report(run, drawn)


def test_a_study_tells_them_point_by_point(run: Results, tmp_path: Path) -> None:
    points = [Point(f"hidden-{size}", {"hidden": size}, {"hidden": size}, "measured") for size in (16, 32)]
    save_study(study_sample.study("hidden", points), tmp_path)
    for point, results in zip(points, (run, sample.results()), strict=True):
        (tmp_path / point.name).mkdir()
        save(results, tmp_path / point.name / "results.json")
    render_study(tmp_path)
    text = (tmp_path / "report.md").read_text()
    none = "none | none | none | 0.00 | 0 | 710 MiB |"
    assert f"| `alloc-arena` | 42.7 (42.3-44.9) | 1.00x, within noise | {none}" in text
    assert "| `pinned` | 42.7 (42.3-44.9) | 2.00x (1.98-2.10) | 468 | 188.0 MB | 10.0 | 25% | 7.00 | 710 MiB |" in text
    assert text.count("## Ablations: memory") == text.count("| `alloc-cudamalloc` | 42.7 (42.3-44.9) |") == 1
    assert text.count("### Hidden 16") == 2  # memory, and the data path
    assert "### Hidden 32" not in text
    assert "`pinned` runs kernels during 25% of the 10.0 us" in text
    named = set(re.findall(r"`figures/(ablation-[^`]*)`", text))
    assert named == {"ablation-memory-hidden-16.svg", "ablation-data_path-hidden-16.svg"}
    assert named == {path.name for path in (tmp_path / "figures").glob("ablation-*.svg")}


def test_a_rung_that_is_meant_to_overlap_is_told_even_if_it_hides_nothing(run: Results) -> None:
    (one,) = [one for one in ablation(run, "data") if one.stage.name == "pinned"]
    nothing = profiled(copies=[CopyUse("host to device", 468.0, 188e6, 10.0, 0.0)], split=Split(30, 10, 0, 41, 0))
    meant = replace(one, stage=msgspec.structs.replace(one.stage, hides_copies=True), profile=nothing)
    naive = next(found for found in ablation(run, "data") if found.stage.name == "naive")
    (list_of_overlaps,) = (block for block in ablation_blocks("data", [naive, meant]) if isinstance(block, Sentences))
    (told,) = list_of_overlaps.texts
    assert "`pinned` runs kernels during 0% of the 10.0 us that the copies of a step take: " in told
    assert told.endswith(". The whole step: 2.00x (1.98-2.10) the speed of `naive`.")
