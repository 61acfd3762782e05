from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from msgspec.structs import replace
from rich.console import Console

from ladder.records.run import Spread, save
from ladder.records.study import Point, save_study
from reports.facts.numbers import spread_microseconds
from reports.facts.study_points import StudyResults, load_results, not_passed, point_winners
from reports.facts.times import step_us
from reports.figures.step_time import axis_of
from reports.render import print_study, render_study
from reports.screens.study import study_csv
from tests.reports.reporting import study_figures, study_report
from tests.reports.sample import replace_stage
from tests.reports.study_sample import STEPS, run_at, study, study_results


def points(key: str, values: list[object]) -> list[Point]:
    return [Point(f"{key}-{index}", {key: value}, {}, "measured") for index, value in enumerate(values)]


def test_a_step_is_an_epoch_by_its_steps() -> None:
    results = study_results([64, 128, 256])
    naive = results.at(results.study.points[0], "naive")
    assert naive is not None
    assert naive.timing is not None
    spread = step_us(naive)
    assert spread is not None
    assert spread.median == pytest.approx(naive.timing.epoch_s.median / STEPS * 1e6)
    assert spread_microseconds(spread) == "157 (146-188)"


def test_a_race_is_run_in_each_class_of_precision() -> None:
    winners = list(point_winners(study_results([64, 128, 256])))
    found = {(one.point.name, one.lead.precision): one.lead for one in winners}
    assert list(found) == [("hidden-64", "float32"), ("hidden-64", "bf16/fp16"), ("hidden-128", "float32"),
                           ("hidden-128", "bf16/fp16")]  # fmt: skip
    single, half = found["hidden-64", "float32"], found["hidden-64", "bf16/fp16"]
    assert (single.stage.name, single.reference.name) == ("cublas", "jax-scan")
    assert (half.stage.name, half.reference.name) == ("bf16-gemm", "jax-scan")  # as exact, and faster
    assert single.ratio.times == pytest.approx(37.0 / 12.0, rel=0.05)


def test_points_that_differ_in_more_than_is_varied_are_told_and_no_figure_names_layers_that_its_points_lack() -> None:
    of_depth = {0: {"batch_size": 128}, 1: {"batch_size": 32, "max_steps": 9}, 3: {"batch_size": 32, "max_steps": 9}}
    points = [
        Point(f"{depth}-{count}", own := {"depth": depth, "networks": count}, {**own, **more}, "measured")
        for depth, more in of_depth.items()
        for count in (1, 4, 16, 64)
    ]
    run, runs = run_at(128), {}
    for point in points:
        settings, hidden = point.settings, [128] * point.values["depth"]
        problem = replace(run.problem, hidden=hidden, batch_size=settings["batch_size"], networks=settings["networks"])
        runs[point.name] = replace(run, problem=problem)
    results = StudyResults(replace(study("depth", points), varied=["depth", "networks"]), runs)
    assert "seed 0; at depth 1 and 3: batch size 32, max steps 9." in study_report(results)
    points[-1] = replace(points[-1], settings={**points[-1].settings, "seed": 7})
    some = StudyResults(replace(results.study, points=points), runs)
    assert "; at depth 3, networks 64: batch size 32, max steps 9, seed 7." in study_report(some)
    flat, *_, deep = (" ".join(study_figures(results)[f"step_time-depth-{depth}.svg"].split()) for depth in of_depth)
    assert ": depth 0, batch 128, MNIST" in flat
    assert ": depth 3, hidden layers of 128, batch 32, MNIST" in deep


def test_a_point_that_was_measured_only_while_disturbed_says_so_in_its_table() -> None:
    results = study_results([64, 128, 256])
    run = results.runs["hidden-64"]
    (calm,) = next(stage for stage in run.stages if stage.name == "naive").processes
    busy = replace(calm, disturbed=["other processes kept 30% of the host's cores busy"])
    slow = replace(busy, runs_s=[1.1 * seconds for seconds in busy.runs_s])
    told = {
        name: study_report(StudyResults(results.study, {"hidden-64": replace_stage(run, "naive", processes=processes)}))
        for name, processes in (("in vain", [calm, busy]), ("once", [calm, slow]), ("always", [busy, busy]))
    }
    marks = {"in vain": "", "once": "†", "always": "‡"}
    for name, text in told.items():
        assert f"| 157{marks[name]} |" in text


def test_a_study_of_learning_rates_tells_how_well_each_learns() -> None:
    results = study_results([64, 128, 256])
    points = [replace(point, values={"learning_rate": rate}) for rate, point in enumerate(results.study.points)]
    of_rates = StudyResults(replace(results.study, varied=["learning_rate"], points=points), results.runs)
    (accuracy,) = {stage.metrics.test_accuracy for stage in results.runs["hidden-64"].stages if stage.metrics}
    for shown, told in ((results, False), (of_rates, True)):
        screen = io.StringIO()
        print_study(shown, Path("here"), console=Console(file=screen, width=100))
        for text in (study_report(shown).partition("## Test accuracy")[2], screen.getvalue()):
            assert (f"{accuracy:.2%}" in text) == told


def test_a_lead_says_which_missing_reference_may_lower_it() -> None:
    results = study_results([64, 128, 256, 512])
    runs = dict(results.runs)
    for name, factor in (("hidden-64", 0.5), ("hidden-128", 2.0)):  # jax-scan is faster once, and slower once
        one = next(stage for stage in runs[name].stages if stage.name == "jax-scan")
        base = next(stage for stage in runs[name].stages if stage.name == "torch-eager").timing
        assert base is not None
        epoch_s = Spread(*(base.epoch_s.median * factor for _ in range(3)))
        timing = replace(base, epoch_s=epoch_s)
        runs[name] = replace_stage(runs[name], one.name, timing=timing)
    runs["hidden-256"] = replace_stage(runs["hidden-256"], "jax-scan", status="skipped", timing=None)
    found = [one for one in point_winners(StudyResults(results.study, runs)) if one.point.name == "hidden-256"]
    assert [(one.lead.precision, one.lead.reference.name, one.missing) for one in found] == [
        ("float32", "torch-eager", ["jax-scan"]),
        ("bf16/fp16", "torch-amp", []),  # faster than jax-scan wherever both have a time
    ]
    assert found[0].text.startswith("at most ")
    assert "(jax-scan)" in study_report(StudyResults(results.study, runs))


def test_missing_times_are_told_with_their_points() -> None:
    results = study_results([64, 128, 256])
    assert not_passed(results) == [
        "naive crashed at hidden 128: out of memory: 9 | 8",
        "hidden 256 skipped: hidden 8192: no room in 4 GiB of memory",
    ]
    for reason, told in ((None, ""), ("out of time", " (out of time)")):
        begun = replace(results.study.points[2], status="begun", reason=reason)
        unfinished = replace(results.study, points=[*results.study.points[:2], begun])
        last = not_passed(StudyResults(unfinished, results.runs))[-1]
        assert last == f"hidden 256: not complete yet{told}; continue with study --resume"


def test_csv_has_a_line_for_every_stage_at_every_point() -> None:
    lines = list(csv.DictReader(io.StringIO(study_csv(study_results([64, 128, 256])))))
    assert len(lines) == 2 * 7
    crashed = next(line for line in lines if (line["hidden"], line["stage"]) == ("128", "naive"))
    assert (crashed["status"], crashed["step_us"], crashed["speedup"]) == ("crashed", "", "")
    best = next(line for line in lines if (line["hidden"], line["stage"]) == ("64", "cublas"))
    assert float(best["step_us"]) == pytest.approx(12.0, rel=0.05)
    assert float(best["speedup"]) == pytest.approx(3.0, rel=0.05)
    assert next(line for line in lines if line["stage"] == "jax-scan")["speedup"] == ""


def test_points_of_another_commit_have_an_origin_of_their_own() -> None:
    results = study_results([64, 128, 256, 512])
    code = {"git_commit": "f" * 40, "uncommitted_changes": False}
    other = results.runs["hidden-128"]
    later = replace(other, environment={**other.environment, "code": code})
    results = StudyResults(results.study, {**results.runs, "hidden-128": later})
    first, second = (
        text for text in study_report(results).splitlines() if text.startswith("- hidden") and "recorded" in text
    )
    assert first.startswith(
        "- hidden 64 and hidden 256: NVIDIA H200, driver 580.65; recorded 2026-11-20, commit 0123456789;"
    )
    assert second.startswith("- hidden 128: NVIDIA H200, driver 580.65; recorded 2026-11-20, commit ffffffffff;")


def test_a_study_without_a_measured_point_says_so_once() -> None:
    none = StudyResults(study("hidden", points("hidden", [64])), {})
    assert study_report(none).count("No point is measured") == 1


@pytest.mark.parametrize(
    ("values", "places", "is_log"),
    [
        ([64, 8192], [64, 8192], True),
        ([0, 1, 8], [0, 1, 8], False),
        ([1, 2, 3], [1, 2, 3], False),
        (["tf32", "float32"], [0, 1], False),
        ([[8, 8], [64, 64]], [8, 64], True),
        ([[], [8], [8, 4]], [0, 1, 2], False),
    ],
)
def test_the_axis_has_numbers_where_there_are_some(values: list[object], places: list[float], is_log: bool) -> None:
    axis = axis_of(["hidden"], points("hidden", values))
    assert list(axis.places.values()) == places
    assert axis.is_log == is_log


def test_a_study_is_drawn_byte_for_byte_and_one_without_runs_is_not() -> None:
    results = study_results()
    assert study_figures(results) == study_figures(results)
    assert study_figures(StudyResults(results.study, {})) == {}


def test_a_second_setting_makes_a_figure_for_each_of_its_values() -> None:
    crossed = [
        Point(f"{size}.{batch}", {"batch_size": batch, "hidden": size}, {}, "measured")
        for batch in (8, 32)
        for size in (64, 128, 256)
    ]
    runs = {point.name: run_at(point.values["hidden"], point.values["batch_size"]) for point in crossed}
    index = replace(study("hidden", crossed), varied=["batch_size", "hidden"])
    assert set(study_figures(StudyResults(index, runs))) == {
        "step_time-batch-size-8.svg",
        "step_time-batch-size-32.svg",
    }


def test_one_point_is_drawn_as_bars_whether_something_varies_or_not() -> None:
    index = replace(study("hidden", [Point("run", {}, {}, "measured")]), varied=[])
    assert set(study_figures(StudyResults(index, {"run": run_at(64)}))) == {"ladder.svg"}
    index = study("hidden", points("hidden", [64]))
    assert set(study_figures(StudyResults(index, {"hidden-0": run_at(64)}))) == {"ladder.svg"}


def test_a_point_with_only_a_weak_reference_has_no_winner() -> None:
    results = study_results([64, 128, 256])
    at_64 = results.runs["hidden-64"]
    weak = replace(at_64, stages=[one for one in at_64.stages if one.name != "jax-scan"])
    runs = {"hidden-64": weak, "hidden-128": results.runs["hidden-128"]}
    found = [(one.point.name, one.lead.reference.name) for one in point_winners(StudyResults(results.study, runs))]
    assert ("hidden-128", "jax-scan") in found
    assert ("hidden-64", "torch-eager") not in found
    lines = csv.DictReader(io.StringIO(study_csv(StudyResults(results.study, runs))))
    speedups = {(line["hidden"], line["stage"]): line["speedup"] for line in lines}
    assert speedups["64", "cublas"] == ""
    assert float(speedups["128", "cublas"]) > 1
    alone = StudyResults(results.study, {"hidden-64": weak})  # no stronger reference is known here
    assert ("hidden-64", "torch-eager") in [(one.point.name, one.lead.reference.name) for one in point_winners(alone)]


def test_a_study_without_references_has_no_winner() -> None:
    results = study_results([64, 128, 256])
    runs = {
        name: replace(run, stages=[one for one in run.stages if one.group != "reference"])
        for name, run in results.runs.items()
    }
    alone = StudyResults(results.study, runs)
    assert list(point_winners(alone)) == []
    assert "fastest reference" not in study_report(alone)
    assert set(study_figures(alone)) == {"step_time.svg"}


def test_a_waiting_point_is_not_shown_as_measured(tmp_path: Path) -> None:
    results = study_results([64, 128, 256])
    first, second, last = results.study.points
    waiting = replace(first, status="waiting")
    save_study(replace(results.study, points=[waiting, second, last]), tmp_path)
    for name, run in results.runs.items():
        (tmp_path / name).mkdir()
        save(run, tmp_path / name / "results.json")
    assert [point.name for point in load_results(tmp_path).measured] == [second.name]


def test_rendering_removes_older_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = study_results([64, 128, 256])
    save_study(results.study, tmp_path)
    for name, run in results.runs.items():
        (tmp_path / name).mkdir()
        save(run, tmp_path / name / "results.json")
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures" / "step_time-older.svg").write_text("")
    shown = render_study(tmp_path)
    assert {path.name for path in (tmp_path / "figures").iterdir()} == {"step_time.svg", "study.csv"}
    assert shown == load_results(tmp_path)
    print_study(shown, tmp_path)
    told = capsys.readouterr().out.replace("\n  ", " ")
    assert "- hidden 64, float32: cublas, 3.05x (2.36-3.93) of the fastest reference, jax-scan" in told
    assert "- naive crashed at hidden 128: out of memory: 9 | 8" in told


def test_a_broken_stage_anywhere_breaks_the_study() -> None:
    results = study_results([64, 128, 256])
    assert results.broken
    mended = {name: replace_stage(run, "naive", status="passed") for name, run in results.runs.items()}
    assert not StudyResults(results.study, mended).broken
