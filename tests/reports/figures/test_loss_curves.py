from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from msgspec.structs import replace

from ladder.records.run import Check, save
from ladder.records.study import save_study
from reports.facts.oracle_distance import oracle_distances
from reports.facts.study_points import StudyResults, not_passed
from reports.figures.loss_curves import band, curves, curves_csv, distances, has_curves
from reports.figures.run_figures import figures
from reports.figures.study_figures import seeds_of
from reports.figures.style import NEAREST
from reports.markdown.study_report import study_report
from reports.render import render_study
from tests.reports.figures.svg import SVG, assert_texts_apart, parse, texts, words
from tests.reports.sample import replace_stage, unprofiled_results
from tests.reports.study_sample import curve_results


def test_a_band_is_the_mean_and_the_ends_over_seeds() -> None:
    results = curve_results()
    runs = list(results.runs.values())[:3]
    own = band(runs, "naive", "validation", lambda seen: seen.loss)
    assert own.epochs == [1.0, 2.0, 3.0]
    single = [band([run], "naive", "validation", lambda seen: seen.loss).means for run in runs]
    assert own.lows == [min(losses) for losses in zip(*single, strict=True)]
    assert own.highs == [max(losses) for losses in zip(*single, strict=True)]
    assert own.means == pytest.approx([sum(losses) / 3 for losses in zip(*single, strict=True)])
    assert own.lows[0] < own.means[0] < own.highs[0]


def test_distances_are_relative_to_the_oracle_of_the_same_run() -> None:
    runs = list(curve_results().runs.values())[:3]
    assert set(distances(runs, "numpy").means) == {NEAREST}
    assert 1e-4 < max(distances(runs, "bf16-gemm").means) <= 1e-3
    assert distances(runs, "gone").epochs == []


@pytest.mark.parametrize("seeds", [1, 3])
def test_lines_are_labelled_and_no_text_lies_on_another(seeds: int) -> None:
    runs = list(curve_results(seeds=seeds).runs.values())[:seeds]
    drawn = curves(runs).svg()
    assert_texts_apart(drawn)
    names = [stage.name for stage in runs[0].stages if stage.curve]
    assert set(names) <= {word.removesuffix(" (CPU)") for word in words(drawn)}
    assert "training loss, log scale" in words(drawn)
    assert ("epoch; mean and range of 3 seeds" in words(drawn)) == (seeds == 3)
    bands = list(parse(drawn).iter(f"{SVG}polygon"))
    assert bool(bands) == (seeds == 3)


def test_the_oracle_is_a_wide_line_below_the_stages_and_a_longer_way_from_it_higher() -> None:
    run = next(iter(curve_results(seeds=1).runs.values()))
    heights = {box.words: box.baseline for box in texts(curves([run]).svg())}
    assert heights["bf16-gemm"] < heights["naive"]  # further from it
    lines = [one for one in parse(curves([run]).svg()).iter(f"{SVG}polyline") if one.get("stroke-width") in ("1", "6")]
    lines = [one for one in lines if one.get("class") != "s-grid"]
    assert lines[0].get("stroke-width") == "6"
    assert sum(one.get("stroke-width") == "6" for one in lines) == 3  # not in the panel of distances from it
    stages = [stage for stage in run.stages if stage.curve]
    assert len(lines) == 3 + 4 * len(stages)
    broken = {stage.name for stage in stages if stage.group == "reference"}
    assert sum(one.get("stroke-dasharray") is not None for one in lines) == 4 * len(broken)


@pytest.mark.parametrize("is_timed", [True, False])
def test_a_study_of_curves_is_written_with_its_csv_timed_or_not(is_timed: bool, tmp_path: Path) -> None:
    results = curve_results(seeds=1)
    save_study(results.study, tmp_path)
    for name, run in results.runs.items():
        stages = run.stages if is_timed else [replace(stage, timing=None) for stage in run.stages]
        (tmp_path / name).mkdir()
        save(replace(run, stages=stages), tmp_path / name / "results.json")
    render_study(tmp_path)
    drawn = {"curves-hidden-64.svg", "curves-hidden-256.svg"}
    assert {path.name for path in (tmp_path / "figures").iterdir()} == {*drawn, "curves.csv", "study.csv"}
    assert all(f"`figures/{name}`, curves hidden" in (tmp_path / "report.md").read_text() for name in drawn)
    several = curve_results()
    assert {name: len(points) for name, points in seeds_of(several).items()} == {"hidden-64": 3, "hidden-256": 3}


def test_csv_has_every_point_of_every_curve() -> None:
    run = next(iter(curve_results(seeds=1).runs.values()))
    lines = list(csv.DictReader(io.StringIO(curves_csv({("64", "0"): run}, ["hidden", "seed"]))))
    assert run.oracle is not None
    assert run.oracle.curve is not None
    a_curve = len(run.oracle.curve.training) + len(run.oracle.curve.validation)
    assert len(lines) == a_curve * (1 + len(run.stages))
    assert {line["stage"] for line in lines} == {"oracle", *(stage.name for stage in run.stages)}
    last = lines[-1]
    assert (last["hidden"], last["seed"], last["kind"], last["epoch"]) == ("64", "0", "validation", "3.0")


def test_a_stage_without_curves_has_a_reason() -> None:
    results = curve_results(seeds=1)
    runs = {
        name: replace_stage(run, "naive", curve=None, no_curve="RuntimeError: no") for name, run in results.runs.items()
    }
    without = StudyResults(results.study, runs)
    assert "naive has no curves: RuntimeError: no" in not_passed(without)
    assert "- naive has no curves: RuntimeError: no" in study_report(without, [])


def test_distances_from_the_oracle_stand_beside_their_limits() -> None:
    results = curve_results()
    runs = list(results.runs.values())[:3]
    found = {one.stage.name: one for one in oracle_distances(runs)}
    assert found["numpy"].worst < 1e-9
    assert 1e-4 < found["bf16-gemm"].worst < 1e-2
    limited = [replace_stage(run, "bf16-gemm", checks=[Check("loss curve", 0.0, 1.0, passed=True)]) for run in runs]
    assert {one.stage.name: one.within for one in oracle_distances(limited)}["bf16-gemm"] is True
    tight = [replace_stage(run, "bf16-gemm", checks=[Check("loss curve", 0.0, 1e-9, passed=True)]) for run in runs]
    assert {one.stage.name: one.within for one in oracle_distances(tight)}["bf16-gemm"] is False
    assert "## Distance from the oracle's curves" in study_report(results, [])


def test_an_ordinary_run_shows_its_curves_where_it_has_some() -> None:
    run = next(iter(curve_results(seeds=1).runs.values()))
    assert has_curves(run)
    assert "curves.svg" in figures(run)
    assert not has_curves(unprofiled_results())
    assert "curves.svg" not in figures(unprofiled_results())
    assert run.oracle is not None
    alone = replace(run, oracle=replace(run.oracle, curve=None))
    assert "curves.svg" in figures(alone)
