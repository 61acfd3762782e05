"""A record that may be committed: of MNIST and a clean commit, with its machine, with its report, over its bounds."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from ladder.records.foreign import read
from ladder.records.run import all_results, load
from ladder.records.study import load_study
from reports.render import render_study
from tools.record import slug

REFERENCE = Path(__file__).parents[2] / "results" / "reference"
RUNS = all_results(REFERENCE, "**")
STUDIES = sorted(REFERENCE.rglob("study.json"))
MOST_BYTES = 1_200_000  # of a run; the largest has 44 stages


def name(path: Path) -> str:
    return str(path.parent.relative_to(REFERENCE))


@pytest.mark.parametrize("path", RUNS, ids=name)
def test_a_run_is_of_a_clean_commit_and_lies_with_its_machine(path: Path) -> None:
    run = load(path)
    assert run.problem.is_mnist
    assert run.environment["code"]["git_commit"]
    assert not run.environment["code"]["uncommitted_changes"]
    assert path.relative_to(REFERENCE).parts[0] == slug(run)
    assert any(stage.timing or stage.curve for stage in run.stages)
    assert len(read(path)) <= MOST_BYTES


@pytest.mark.parametrize("path", STUDIES, ids=name)
def test_a_study_has_its_points_and_is_rendered_by_this_code(path: Path, tmp_path: Path) -> None:
    measured = {point.name for point in load_study(path.parent).points if point.status == "measured"}
    assert measured == {run.parent.name for run in all_results(path.parent)}
    again = Path(shutil.copytree(path.parent, tmp_path / path.parent.name))
    render_study(again)
    for file in ("report.md", *(f"figures/{one.name}" for one in (path.parent / "figures").iterdir())):
        assert (again / file).read_bytes() == (path.parent / file).read_bytes(), "run_ladder.py report writes it again"


def test_runs_are_packed() -> None:
    assert {path.suffix for path in RUNS} == {".gz"}, "gzip -nf results/reference/*/*/results.json"


@pytest.mark.parametrize("path", [path for path in RUNS if "studies" not in path.parts], ids=name)
def test_a_run_has_its_report_and_figures(path: Path) -> None:
    assert (path.parent / "report.md").exists()
    assert any((path.parent / "figures").iterdir())


NOISE = 1.02  # a median may lie this much below a floor: clocks differ a little between limits and stages


@pytest.mark.parametrize("path", RUNS, ids=lambda path: path.parent.name)
def test_no_bound_exceeds_the_measured_time(path: Path) -> None:
    for stage in load(path).stages:
        if stage.timing is not None and stage.bounds is not None:
            step_us = stage.timing.step_us
            assert stage.bounds.cheat_limit_us <= step_us, stage.name
            assert (stage.bounds.design_floor_us or 0.0) <= NOISE * step_us, stage.name


@pytest.mark.parametrize(
    "script", sorted(REFERENCE.glob("*/torch/*/train_*.py")), ids=lambda path: str(path.parent.name)
)
def test_a_recorded_script_finds_its_model(script: Path) -> None:
    (away,) = re.findall(r'parent / "(.*)"\)\)', script.read_text(encoding="utf-8"))
    assert (script.parent / away / f"{script.parent.name}.py").is_file()
