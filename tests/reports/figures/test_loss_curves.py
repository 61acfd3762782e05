from __future__ import annotations

import csv
import io
import re
from collections import Counter
from pathlib import Path

import pytest
from msgspec.structs import replace

from ladder.records.run import Check, Results, save
from ladder.records.study import save_study
from reports.facts.oracle_distance import largest, oracle_distances
from reports.facts.study_points import StudyResults, not_passed
from reports.figures.loss_curves import PARTS, curves, curves_csv, has_curves, thinned
from reports.figures.run_figures import drawings, seeds_of
from reports.render import render_study
from tests.reports.figures.svg import assert_texts_apart, words
from tests.reports.reporting import study_report
from tests.reports.sample import replace_stage, unprofiled_results
from tests.reports.study_sample import NAMES, curve_results

RUNS = list(curve_results().runs.values())[:3]
DRAWN = curves(RUNS).svg()


def moved(loss: float | None) -> list[Results]:
    """The runs, where the last training loss of naive with the second seed is this one."""
    curve = next(stage.curve for stage in RUNS[1].stages if stage.name == "naive")
    assert curve is not None
    curve = replace(curve, training=[*curve.training[:-1], replace(curve.training[-1], loss=loss)])
    return [RUNS[0], replace_stage(RUNS[1], "naive", curve=curve), RUNS[2]]


def heights(drawn: str, colour: str, width: str) -> list[list[float]]:
    """The heights of the points of each line of this look."""
    found = re.findall(rf'"s-{colour}" stroke-width="{width}"[^>]* points="([^"]+)"', drawn)
    return [[float(place.partition(",")[2]) for place in points.split()] for points in found]


def test_a_line_is_the_largest_distance_of_stages_and_seeds_in_each_part_of_training() -> None:
    together, *single = ({one.stage.name: one.by_step for one in oracle_distances(runs)} for runs in (RUNS, *zip(RUNS)))
    for name, by_step in together.items():
        assert by_step == {step: max(one[name][step] for one in single) for step in by_step}
    assert 1e-4 < max(together["bf16-gemm"].values()) < 1e-2
    assert largest([{1: 2.0, 2: 1.0}, {1: 0.5, 2: 3.0}]) == {1: 2.0, 2: 3.0}
    assert thinned({1: 5.0, 2: 3.0}) == {1: 5.0, 2: 3.0}
    assert list(thinned({step: float(step % 7) for step in range(10 * PARTS)}).values()) == [6.0] * PARTS


@pytest.mark.parametrize("loss", [9.0, None])
def test_a_stage_that_is_off_is_named_and_lifts_the_line(loss: float | None) -> None:
    off = curves(moved(loss)).svg()
    assert not any(word.endswith(": naive") for word in words(DRAWN))
    (named,) = (word for word in words(off) if word.endswith(": naive"))
    assert named.startswith("float32 ")
    assert ("not finite" in named) == (loss is None)
    assert [words(drawn)[0][:6] for drawn in (DRAWN, off)] == ["7 of 7", "6 of 7"]
    assert len(heights(DRAWN, "limit", "1.4")) == 2  # of the limit and its label
    (line,) = (one for one in heights(off, "limit", "1.4") if len(one) > 2)  # the others are the limit and labels
    assert line[-1] < min(line[:-1])


def test_a_stage_outside_its_own_limit_is_named_before_farther_ones() -> None:
    strict = [replace_stage(run, "naive", checks=[Check("loss curve", 0.0, 1e-12, passed=True)]) for run in RUNS]
    assert any(word.endswith(": naive") for word in words(curves(strict).svg()))


@pytest.mark.parametrize("seeds", [1, 3])
def test_thirty_stages_take_few_bytes_and_no_text_lies_on_another(seeds: int) -> None:
    for names in ([""], [f"-early-fp{index}" for index in range(5)]):
        runs = [
            replace(run, stages=[replace(one, name=one.name + name) for one in run.stages for name in names])
            for run in RUNS[:seeds]
        ]
        drawn = curves(runs).svg()
        assert_texts_apart(drawn)
        assert len(drawn) < 40_000
        assert {f"{7 * len(names)} stages", "float64 oracle", "0", "3"} <= set(words(drawn))
        assert any(word.endswith("first of 3 seeds") for word in words(drawn)) == (seeds == 3)
        assert drawn.count("<circle") == 2 * 2 * 2 * 3  # panels, oracle or stages, ends, epochs


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
    assert all(f"](figures/{name})" in (tmp_path / "report.md").read_text() for name in drawn)
    assert "![Training and validation, 784-64-64-64-10, batch 32]" in (tmp_path / "report.md").read_text()
    several = seeds_of(curve_results()).items()
    assert {name: len(points) for name, points in several} == {"hidden-64": 3, "hidden-256": 3}


def test_csv_has_every_point_of_every_curve() -> None:
    lines = list(csv.DictReader(io.StringIO(curves_csv({("64", "0"): RUNS[0]}, ["hidden", "seed"]))))
    a_curve = 141 + 3
    assert Counter(line["stage"] for line in lines) == dict.fromkeys(["oracle", *NAMES], a_curve)
    assert list(lines[-1].values())[:2] + list(lines[-1].values())[3:6] == ["64", "0", "validation", "5625", "3.0"]


def test_a_stage_without_curves_has_a_reason() -> None:
    results, reason = curve_results(seeds=1), "RuntimeError: no"
    runs = {name: replace_stage(run, "naive", curve=None, no_curve=reason) for name, run in results.runs.items()}
    without = StudyResults(results.study, runs)
    assert "naive has no curves: RuntimeError: no" in not_passed(without)
    assert "- naive has no curves: RuntimeError: no" in study_report(without)


def test_distances_stand_beside_the_least_limit_of_all_seeds() -> None:
    for limit, within in ((1.0, True), (1e-9, False)):
        checks = [Check("loss curve", 0.0, limit, passed=True)]
        runs = [RUNS[0], *(replace_stage(run, "bf16-gemm", checks=checks) for run in RUNS[1:])]
        found = {one.stage.name: one for one in oracle_distances(runs)}["bf16-gemm"]
        assert (found.limit, found.within) == (min(limit, 0.005), within)
    peak = max(found.by_step.values()) / 1e-9
    assert f"bf16 {peak:.2g}: bf16-gemm" in words(curves(runs).svg())
    unchecked = [replace(run, stages=[replace(stage, checks=[]) for stage in run.stages]) for run in RUNS]
    assert heights(curves(unchecked).svg(), "limit", "1.4") == []
    assert any("as a share of the first epoch's" in word for word in words(curves(unchecked).svg()))
    assert "## Distance from the oracle's curves" in study_report(curve_results())


def test_an_ordinary_run_shows_its_curves_where_it_has_some() -> None:
    for run, has_some in ((RUNS[0], True), (replace(RUNS[0], oracle=None), True), (unprofiled_results(), False)):
        assert has_curves(run) == ("curves.svg" in drawings(run)) == has_some
