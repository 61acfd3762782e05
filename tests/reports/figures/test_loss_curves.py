from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from ladder.records.run import save
from ladder.records.study import save_study
from reports.facts.oracle_distance import largest, oracle_distances
from reports.figures.loss_curves import PARTS, curves, thinned
from reports.figures.run_figures import seeds_of
from reports.render import render_study
from tests.reports.figures.svg import assert_texts_apart, words
from tests.reports.study_sample import curve_results

RUNS = list(curve_results().runs.values())[:3]


def test_a_line_is_the_largest_distance_of_stages_and_seeds_in_each_part_of_training() -> None:
    together, *single = ({one.stage.name: one.by_step for one in oracle_distances(runs)} for runs in (RUNS, *zip(RUNS)))
    for name, by_step in together.items():
        assert by_step == {step: max(one[name][step] for one in single) for step in by_step}
    assert 1e-4 < max(together["bf16-gemm"].values()) < 1e-2
    assert largest([{1: 2.0, 2: 1.0}, {1: 0.5, 2: 3.0}]) == {1: 2.0, 2: 3.0}
    assert thinned({1: 5.0, 2: 3.0}) == {1: 5.0, 2: 3.0}
    assert list(thinned({step: float(step % 7) for step in range(10 * PARTS)}).values()) == [6.0] * PARTS


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
        assert drawn.count("<circle") == 2 * 2 * 2 * 3 + 1  # panels, oracle or stages, ends, epochs; the peak


@pytest.mark.parametrize("is_timed", [True, False])
def test_a_study_of_curves_is_written_timed_or_not(is_timed: bool, tmp_path: Path) -> None:
    results = curve_results(seeds=1)
    save_study(results.study, tmp_path)
    for name, run in results.runs.items():
        stages = run.stages if is_timed else [replace(stage, timing=None) for stage in run.stages]
        (tmp_path / name).mkdir()
        save(replace(run, stages=stages), tmp_path / name / "results.json")
    render_study(tmp_path)
    drawn = {"curves-hidden-64.svg", "curves-hidden-256.svg"}
    assert {path.name for path in (tmp_path / "figures").iterdir()} == drawn
    assert all(f"](figures/{name})" in (tmp_path / "report.md").read_text() for name in drawn)
    several = seeds_of(curve_results()).items()
    assert {name: len(points) for name, points in several} == {"hidden-64": 3, "hidden-256": 3}
