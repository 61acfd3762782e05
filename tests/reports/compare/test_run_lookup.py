"""The lookup of runs that a comparison names."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from ladder.records.run import Results, StageDoc, StageResult, save
from reports.compare.run_lookup import named_runs, newest_run, recorded_like, run_of, run_to_explain
from reports.facts.two_runs import CannotCompareError
from reports.report_error import ReportError
from tests.reports.recorded import run, stage, times
from tests.reports.sample import results


def of_network(*hidden: int) -> Results:
    results = run(stage("naive", times(50.0)))
    return replace(results, problem=replace(results.problem, hidden=list(hidden)))


@pytest.fixture
def reference(tmp_path: Path) -> Path:
    """Recorded runs of two GPUs, one of them with two problems, and another run."""
    folder = tmp_path / "reference"
    for name, hidden in (("h200/deep", (128, 128)), ("h200/flat", ()), ("a100/deep", (128, 128))):
        (folder / name).mkdir(parents=True)
        save(of_network(*hidden), folder / name / "results.json")
    save(of_network(128, 128), tmp_path / "mine.json")
    return folder


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (["reference:h200/flat", "reference:h200"], ["reference:h200/flat", "reference:h200/flat"]),
        (["reference:h200", "{}/mine.json"], ["reference:h200/deep", "{}/mine.json"]),
        (["reference:h200", "reference:a100"], ["reference:h200/deep", "reference:a100/deep"]),
        (["reference:h", "reference:A100"], ["reference:h200/deep", "reference:a100/deep"]),
        (["{}/reference/h200/flat", "reference:h200/deep"], ["{}/reference/h200/flat", "reference:h200/deep"]),
    ],
)
def test_a_recorded_run_has_the_problem(reference: Path, tmp_path: Path, names: list[str], found: list[str]) -> None:
    asked = [name.format(tmp_path) for name in names]
    assert [name for name, _ in named_runs(asked, reference)] == [name.format(tmp_path) for name in found]


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["reference:h200"], "compare reference:h200: only one run; name a second one, such as runs/mine"),
        (["mine.json"], "compare mine.json: only one run; name a second one, such as reference:h200"),
        (["reference:h300", "reference:h200"], "reference:h300: no such recorded run; there are a100/deep, h200/deep"),
        (["reference:a100/flat", "reference:h200"], "reference:a100/flat: no such recorded run"),
        (["reference:", "reference:h200"], "reference:: no such recorded run"),
    ],
)
def test_missing_runs_are_told(reference: Path, names: list[str], said: str) -> None:
    with pytest.raises(CannotCompareError, match=said):
        named_runs(names, reference)


def test_two_gpus_with_one_beginning_are_told_apart(reference: Path) -> None:
    (reference / "h100" / "deep").mkdir(parents=True)
    save(of_network(128, 128), reference / "h100" / "deep" / "results.json")
    with pytest.raises(CannotCompareError, match="reference:h: no such recorded run"):
        named_runs(["reference:h", "reference:a100"], reference)
    assert [name for name, _ in named_runs(["reference:h1", "reference:h2"], reference)] == [
        "reference:h100/deep",
        "reference:h200/deep",
    ]


def test_a_recording_without_the_others_problem_names_its_own(reference: Path, tmp_path: Path) -> None:
    save(of_network(7), tmp_path / "odd.json")
    said = "reference:h200: has no run of the others' problem, only of flat, deep"
    with pytest.raises(CannotCompareError, match=said):
        named_runs([str(tmp_path / "odd.json"), "reference:h200"], reference)


def save_run(folder: Path, one: StageResult, age: int) -> None:
    """A run of one stage, `age` seconds after the epoch."""
    folder.mkdir(parents=True)
    save(run(one), folder / "results.json")
    os.utime(folder / "results.json", (age, age))


def test_a_stage_is_explained_from_the_newest_run_else_the_shallowest_recorded_one(tmp_path: Path) -> None:
    reference, runs = tmp_path / "reference", tmp_path / "runs"
    sample = next(one for one in results().stages if one.profiles)
    profiled = replace(stage("naive", times(50.0)), profiles=sample.profiles)
    for age, (folder, one) in enumerate(
        [
            (reference / "h200" / "hidden-1024", profiled),
            (reference / "h200" / "hidden-256", profiled),
            (reference / "h200" / "hidden-8-8", profiled),
            (runs / "unprofiled", stage("naive", times(50.0))),
        ]
    ):
        save_run(folder, one, age)
    assert run_of("naive", runs, reference)[0] == reference / "h200" / "hidden-256"
    save_run(reference / "h200" / "logistic", profiled, 5)
    assert run_of("naive", runs, reference)[0] == reference / "h200" / "logistic"
    save_run(runs / "new", profiled, 7)
    save_run(runs / "old", profiled, 6)
    (runs / "damaged").mkdir()
    (runs / "damaged" / "results.json").write_text("{")
    assert run_of("naive", runs, reference)[0] == runs / "new"
    with pytest.raises(
        ReportError, match=r"^explain cublas: no run here .*; record one .*--stages cublas --profile cupti$"
    ):
        run_of("cublas", runs, reference)
    cublas = stage("cublas", times(50.0))
    point = reference / "h200" / "studies" / "depth" / "depth-1"
    for folder, one in ((point, cublas), (runs / "failed", replace(cublas, status="failed"))):
        save_run(folder, one, 8)
        assert run_of("cublas", runs, reference)[0] == point
    save_run(runs / "timed", cublas, 0)
    assert run_of("cublas", runs, reference)[0] == runs / "timed"


def test_a_recorded_run_that_was_predicted_comes_before_a_shallower_one(tmp_path: Path) -> None:
    reference, runs = tmp_path / "reference", tmp_path / "runs"
    sample = next(one for one in results().stages if one.profiles)
    predicted = StageDoc("w", "c", "e", predict="784-8-8-10, batch 128: 50 us.")
    timed = replace(stage("naive", times(50.0)), doc=predicted)
    for name, hidden in {"flat": (), "hidden-8-8": (8, 8)}.items():
        for kind, one in (("h200", replace(timed, profiles=sample.profiles)), ("h200/studies/depth", timed)):
            (reference / kind / name).mkdir(parents=True)
            save(replace(of_network(*hidden), stages=[one]), reference / kind / name / "results.json")
    assert run_of("naive", runs, reference)[0] == reference / "h200" / "hidden-8-8"
    for name in ("flat", "hidden-8-8"):
        (reference / "h200" / name / "results.json").unlink()
    assert run_of("naive", runs, reference)[0] == reference / "h200" / "studies" / "depth" / "hidden-8-8"
    save_run(runs / "own", timed, 0)
    assert run_of("naive", runs, reference)[0] == runs / "own"


def test_a_run_to_explain_is_named_as_a_folder_or_as_a_recorded_one(reference: Path, tmp_path: Path) -> None:
    deep = reference / "h200" / "deep"
    for asked in (Path("reference:h200/deep"), deep):
        name, folder, found = run_to_explain("naive", asked, tmp_path, reference)
        assert (name, folder, found.problem.hidden) == ("naive", deep, [128, 128])
    with pytest.raises(CannotCompareError, match="reference:h300: no such recorded run"):
        run_to_explain("naive", Path("reference:h300"), tmp_path, reference)


def test_a_run_without_a_stage_stands_for_its_fastest_rung(reference: Path, tmp_path: Path) -> None:
    found = run(stage("naive", times(50.0)), stage("async", times(40.0)), stage("numpy", times(9.0), group="reference"))
    save(found, reference / "h200" / "flat" / "results.json")
    for asked in ("reference:h200/flat", str(reference / "h200" / "flat")):
        assert run_to_explain(asked, None, tmp_path, reference)[:2] == ("async", reference / "h200" / "flat")
    save(run(stage("numpy", times(9.0), group="reference")), reference / "h200" / "flat" / "results.json")
    with pytest.raises(ReportError, match="timed no rung; name a stage before the run"):
        run_to_explain("reference:h200/flat", None, tmp_path, reference)


def test_a_stage_on_the_cpu_is_explained_from_its_newest_time(tmp_path: Path) -> None:
    timed = stage("numpy", times(100.0), group="reference")
    save_run(tmp_path / "runs" / "gpu", timed, 2)
    save_run(tmp_path / "runs" / "cpu", replace(timed, device="cpu"), 1)
    save_run(tmp_path / "runs" / "failed", replace(timed, device="cpu", status="failed"), 3)
    assert run_of("numpy", tmp_path / "runs", tmp_path)[0] == tmp_path / "runs" / "cpu"


def test_a_recorded_profile_comes_before_a_recorded_time_on_a_cpu(tmp_path: Path) -> None:
    reference, runs = tmp_path / "reference", tmp_path / "runs"
    sample = next(one for one in results().stages if one.profiles)
    on_cpu = replace(stage("torch-eager", times(100.0), group="reference"), device="cpu")
    save_run(reference / "a-cpu" / "flat", on_cpu, 1)
    assert run_of("torch-eager", runs, reference)[0] == reference / "a-cpu" / "flat"
    save_run(reference / "h200" / "flat", replace(on_cpu, device="gpu", profiles=sample.profiles), 2)
    assert run_of("torch-eager", runs, reference)[0] == reference / "h200" / "flat"
    save_run(runs / "own", on_cpu, 3)
    assert run_of("torch-eager", runs, reference)[0] == runs / "own"


def test_the_recorded_run_beside_a_run_is_another_one_of_its_problem(tmp_path: Path) -> None:
    first = results()
    for name, recorded in (("a", first), ("b", replace(first, created="2026-11-21T10:00:00Z"))):
        (tmp_path / "h200" / name).mkdir(parents=True)
        save(recorded, tmp_path / "h200" / name / "results.json")
    found = recorded_like(first, tmp_path)
    assert found is not None
    assert found.created == "2026-11-21T10:00:00Z"
    other = replace(first, problem=replace(first.problem, batch_size=7))
    assert recorded_like(other, tmp_path) is None
    gpu = {"gpu": {"name": "NVIDIA H100"}}
    (tmp_path / "h100" / "a").mkdir(parents=True)
    for created in ("later", "recorded anew"):
        save(replace(first, created=created, environment=gpu), tmp_path / "h100" / "a" / "results.json")
        found = recorded_like(replace(first, environment=gpu), tmp_path)
        assert found is not None
        assert found.created == created
    found = recorded_like(first, tmp_path)  # of its own GPU, though the other one comes first
    assert found is not None
    assert found.created == "2026-11-21T10:00:00Z"


@pytest.mark.parametrize(
    ("environment", "found"),
    [
        ({"gpu": {"name": "NVIDIA A100"}}, "h200"),  # though the CPU's folder comes first
        ({"gpu": {"name": "NVIDIA H200"}}, "h200"),
        ({"cpu": {"model": "AMD EPYC", "cores_usable": 2}}, "cpu"),
        ({"cpu": {"model": "Another", "cores_usable": 4}}, "cpu"),
        ({"cpu": {"model": "Another", "cores_usable": 2}}, "zen-cpu"),
    ],
)
def test_a_run_with_a_gpu_stands_beside_one_with_a_gpu(tmp_path: Path, environment: dict[str, Any], found: str) -> None:
    recorded = {
        "cpu": {"cpu": {"model": "AMD EPYC", "cores_usable": 2}},
        "h200": {"gpu": {"name": "NVIDIA H200"}, "cpu": {"model": "AMD EPYC", "cores_usable": 2}},
        "zen-cpu": {"cpu": {"model": "Another", "cores_usable": 2}},
    }
    for name, known in recorded.items():
        (tmp_path / name / "logistic").mkdir(parents=True)
        one = replace(results(), created=name, environment=known)
        save(one, tmp_path / name / "logistic" / "results.json")
    other = recorded_like(replace(results(), environment=environment), tmp_path)
    assert other is not None
    assert other.created == found


def test_no_recorded_run_of_the_other_kind_of_device_stands_beside_a_run(tmp_path: Path) -> None:
    on_cpu = replace(results(), created="cpu", environment={})
    (tmp_path / "cpu" / "logistic").mkdir(parents=True)
    save(on_cpu, tmp_path / "cpu" / "logistic" / "results.json")
    assert recorded_like(results(), tmp_path) is None
    (tmp_path / "cpu" / "logistic" / "results.json").unlink()
    (tmp_path / "h200" / "logistic").mkdir(parents=True)
    save(results(), tmp_path / "h200" / "logistic" / "results.json")
    assert recorded_like(on_cpu, tmp_path) is None


def test_the_newest_run_is_opened_else_a_recorded_one(tmp_path: Path) -> None:
    with pytest.raises(ReportError, match="open: no run"):
        newest_run(tmp_path / "runs", tmp_path)
    (tmp_path / "h200" / "logistic").mkdir(parents=True)
    save(results(), tmp_path / "h200" / "logistic" / "results.json")
    assert newest_run(tmp_path / "runs", tmp_path) == tmp_path / "h200" / "logistic"
    (tmp_path / "runs" / "mine").mkdir(parents=True)
    save(results(), tmp_path / "runs" / "mine" / "results.json")
    assert newest_run(tmp_path / "runs", tmp_path) == tmp_path / "runs" / "mine"
