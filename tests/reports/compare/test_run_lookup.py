"""The lookup of runs that a comparison names."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from ladder.records.run import Results, StageDoc, StageResult, load, save
from reports.compare.run_lookup import named_runs, newest_run, run_of, run_to_explain
from reports.facts.two_runs import CannotCompareError
from reports.report_error import ReportError
from tests.reports.recorded import run, stage, times
from tests.reports.sample import results

NAIVE = stage("naive", times(50.0))
PROFILED = replace(NAIVE, profiles=next(one for one in results().stages if one.profiles).profiles)


def of_network(*hidden: int, known: StageResult = NAIVE) -> Results:
    results = run(known)
    return replace(results, problem=replace(results.problem, hidden=list(hidden)))


def kept(found: Results | StageResult, folder: Path, age: int | None = None) -> Path:
    """The folder with a run, or with a run of one stage; `age` in seconds after the epoch."""
    folder.mkdir(parents=True, exist_ok=True)
    save(run(found) if isinstance(found, StageResult) else found, folder / "results.json")
    if age is not None:
        os.utime(folder / "results.json", (age, age))
    return folder


@pytest.fixture
def reference(tmp_path: Path) -> Path:
    """Recorded runs of two GPUs, one of them with two problems, and another run."""
    for name, hidden in (("h200/deep", (128, 128)), ("h200/flat", ()), ("a100/deep", (128, 128))):
        kept(of_network(*hidden), tmp_path / "reference" / name)
    save(of_network(128, 128), tmp_path / "mine.json")
    return tmp_path / "reference"


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
        (["reference:h300", "reference:h200"], "reference:h300: no such recorded run; there are a100/deep, h200/deep"),
        (["reference:a100/flat", "reference:h200"], "reference:a100/flat: no such recorded run"),
        (["reference:", "reference:h200"], "reference:: no such recorded run"),
    ],
)
def test_missing_runs_are_told(reference: Path, names: list[str], said: str) -> None:
    with pytest.raises(CannotCompareError, match=said):
        named_runs(names, reference)


def test_the_run_to_compare_with_is_another_of_its_problem_and_kind_of_machine(reference: Path, tmp_path: Path) -> None:
    (reference / "a100" / "broken").mkdir()
    (reference / "a100" / "broken" / "results.json").write_text("{")
    mine, odd, file = of_network(128, 128), of_network(7), tmp_path / "mine.json"
    on_cpu = replace(mine, environment={**mine.environment, "gpu": None})
    recorded = load(reference / "a100" / "deep")
    proposed = "reference:a100/deep", "reference:h200/deep", "runs/mine", "runs/mine"
    for one, second in zip((mine, recorded, on_cpu, odd), proposed, strict=True):
        save(one, file)
        with pytest.raises(CannotCompareError, match=f"{file}: only one run; name a second one, such as {second}$"):
            named_runs([str(file)], reference)


def test_two_gpus_with_one_beginning_are_told_apart(reference: Path) -> None:
    kept(of_network(128, 128), reference / "h100" / "deep")
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


def test_a_stage_is_explained_from_the_newest_run_else_the_shallowest_recorded_one(tmp_path: Path) -> None:
    reference, runs = tmp_path / "reference", tmp_path / "runs"
    for age, name in enumerate(("hidden-1024", "hidden-256", "hidden-8-8")):
        kept(PROFILED, reference / "h200" / name, age)
    kept(NAIVE, runs / "unprofiled", 3)
    assert run_of("naive", runs, reference)[0] == reference / "h200" / "hidden-256"
    logistic = kept(PROFILED, reference / "h200" / "logistic", 5)
    assert run_of("naive", runs, reference)[0] == logistic
    new, _ = kept(PROFILED, runs / "new", 7), kept(PROFILED, runs / "old", 6)
    (runs / "damaged").mkdir()
    (runs / "damaged" / "results.json").write_text("{")
    assert run_of("naive", runs, reference)[0] == new
    said = r"^explain cublas: no run here .*; record one .*--stages cublas --profile cupti$"
    with pytest.raises(ReportError, match=said):
        run_of("cublas", runs, reference)
    cublas = stage("cublas", times(50.0))
    point = kept(cublas, reference / "h200" / "studies" / "depth" / "depth-1", 8)
    assert run_of("cublas", runs, reference)[0] == point
    kept(replace(cublas, status="failed"), runs / "failed", 8)
    assert run_of("cublas", runs, reference)[0] == point
    assert kept(cublas, runs / "timed", 0) == run_of("cublas", runs, reference)[0]


def test_a_recorded_run_that_was_predicted_comes_before_a_shallower_one(tmp_path: Path) -> None:
    reference, runs = tmp_path / "reference", tmp_path / "runs"
    doc = StageDoc("w", "c", "e", predict="784-8-8-10, batch 128: 50 us.")
    for name, hidden in {"flat": (), "hidden-8-8": (8, 8)}.items():
        for kind, one in (("h200", PROFILED), ("h200/studies/depth", NAIVE)):
            kept(of_network(*hidden, known=replace(one, doc=doc)), reference / kind / name)
    assert run_of("naive", runs, reference)[0] == reference / "h200" / "hidden-8-8"
    for name in ("flat", "hidden-8-8"):
        (reference / "h200" / name / "results.json").unlink()
    assert run_of("naive", runs, reference)[0] == reference / "h200" / "studies" / "depth" / "hidden-8-8"
    assert kept(replace(NAIVE, doc=doc), runs / "own", 0) == run_of("naive", runs, reference)[0]


def test_a_run_to_explain_is_named_as_a_folder_or_as_a_recorded_one(reference: Path, tmp_path: Path) -> None:
    deep = reference / "h200" / "deep"
    for asked in (Path("reference:h200/deep"), deep):
        name, folder, found = run_to_explain("naive", asked, tmp_path, reference)
        assert (name, folder, found.problem.hidden) == ("naive", deep, [128, 128])
    with pytest.raises(CannotCompareError, match="reference:h300: no such recorded run"):
        run_to_explain("naive", Path("reference:h300"), tmp_path, reference)


def test_a_run_without_a_stage_stands_for_its_fastest_rung(reference: Path, tmp_path: Path) -> None:
    numpy = stage("numpy", times(9.0), group="reference")
    flat = kept(run(NAIVE, stage("async", times(40.0)), numpy), reference / "h200" / "flat")
    for asked in ("reference:h200/flat", str(flat)):
        assert run_to_explain(asked, None, tmp_path, reference)[:2] == ("async", flat)
    kept(numpy, flat)
    with pytest.raises(ReportError, match="timed no rung; name a stage before the run"):
        run_to_explain("reference:h200/flat", None, tmp_path, reference)


def test_a_stage_on_the_cpu_is_explained_from_its_newest_time(tmp_path: Path) -> None:
    timed = stage("numpy", times(100.0), group="reference")
    kept(timed, tmp_path / "runs" / "gpu", 2)
    on_cpu = kept(replace(timed, device="cpu"), tmp_path / "runs" / "cpu", 1)
    kept(replace(timed, device="cpu", status="failed"), tmp_path / "runs" / "failed", 3)
    assert run_of("numpy", tmp_path / "runs", tmp_path)[0] == on_cpu


def test_a_recorded_profile_comes_before_a_recorded_time_on_a_cpu(tmp_path: Path) -> None:
    reference, runs = tmp_path / "reference", tmp_path / "runs"
    on_cpu = replace(stage("torch-eager", times(100.0), group="reference"), device="cpu")
    on_gpu = replace(on_cpu, device="gpu", profiles=PROFILED.profiles)
    for folder, one in ((reference / "a-cpu" / "flat", on_cpu), (reference / "h200" / "flat", on_gpu)):
        assert kept(one, folder) == run_of("torch-eager", runs, reference)[0]
    assert kept(on_cpu, runs / "own") == run_of("torch-eager", runs, reference)[0]


def test_the_newest_run_is_opened_else_a_recorded_one(tmp_path: Path) -> None:
    with pytest.raises(ReportError, match="open: no run"):
        newest_run(tmp_path / "runs", tmp_path)
    for folder in ("h200/logistic", "runs/mine"):
        assert kept(results(), tmp_path / folder) == newest_run(tmp_path / "runs", tmp_path)
