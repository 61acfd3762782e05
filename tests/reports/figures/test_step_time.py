from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from ladder.records.limits_record import Limit
from ladder.records.run import Results
from ladder.records.study import Point
from reports.facts import numbers
from reports.facts.study_points import StudyResults, load_results
from reports.facts.times import median_us
from reports.figures.step_time import OTHERS, axis_of, step_time
from tests.reports.figures.svg import SVG, assert_texts_apart, parse, texts, words
from tests.reports.sample import limits, replace_stage
from tests.reports.study_sample import run_at, study, study_results


def drawn(results: StudyResults) -> str:
    return step_time(results, axis_of(results.study.varied, results.measured), results.measured).svg()


def dots(svg: str) -> int:
    """The number of times in a figure."""
    return len(list(parse(svg).iter(f"{SVG}circle")))


def test_every_line_carries_its_name_and_its_last_time() -> None:
    assert_texts_apart(drawn(study_results()))
    shown = words(drawn(study_results([64, 128, 256])))
    assert any(word.startswith("jax-scan  ") for word in shown)
    assert any(word.startswith("naive  ") for word in shown)  # at its end, as it crashed at 128
    assert shown[0] == "Lead of float32 rungs: 3.05x at hidden 64, 2.95x at 128"


def test_a_lead_is_the_quotient_of_the_two_times_below_it() -> None:
    shown = words(drawn(study_results([64, 128, 256])))
    lead = float(shown[shown.index("cublas over jax-scan:") - 1].removeprefix("float32 rungs  ").removesuffix("x"))
    reference, own = shown[shown.index("cublas over jax-scan:") + 1].removesuffix(" us a step").split(" / ")
    assert float(reference) / float(own) == pytest.approx(lead, rel=5e-3)


def test_of_many_lines_those_that_no_lead_needs_are_faint_and_unnamed() -> None:
    text = drawn(load_results(Path("results/reference/h200/studies/hidden-size")))
    shown = words(text)
    assert any(word.startswith("jax-scan  ") for word in shown)
    assert not any(word.startswith("torch-eager  ") for word in shown)
    assert OTHERS.words in shown
    assert OTHERS.words not in words(drawn(study_results()))
    assert "On the CPU" not in shown  # its colour is there: the host's launches have it


def test_references_are_broken_grey_lines() -> None:
    lines = [
        one for one in parse(drawn(study_results())).iter(f"{SVG}polyline") if one.get("stroke-dasharray") == "6 4"
    ]
    assert len(lines) == 4
    assert {one.get("class") for one in lines} == {"s-reference"}


def test_a_missing_time_interrupts_a_line_and_whiskers_show_the_runs() -> None:
    results = study_results([64, 128, 256, 512])
    whole = drawn(results)
    run = replace_stage(results.runs["hidden-128"], "cublas", status="crashed", reason="no", timing=None)
    broken = drawn(StudyResults(results.study, {**results.runs, "hidden-128": run}))
    assert dots(broken) < dots(whole)
    assert len([box for box in texts(broken) if box.words.startswith("cublas  ")]) == 1
    plain = [line for line in parse(whole).iter(f"{SVG}polyline") if set(line.attrib) == {"class", "points"}]
    assert {line.get("class") for line in plain} - {"s-grid", "s-faint"}


def test_a_time_that_was_taken_while_disturbed_is_a_ring() -> None:
    results = study_results([64, 128, 256])
    at_64 = results.runs["hidden-64"]
    stage = next(one for one in at_64.stages if one.name == "cublas")
    disturbed = [replace(one, disturbed=["others used the CPU"]) for one in stage.processes]
    runs = {**results.runs, "hidden-64": replace_stage(at_64, "cublas", processes=disturbed)}
    before, after = (drawn(one).count('<circle class="f-paper') for one in (results, StudyResults(results.study, runs)))
    assert after == before + 1


def test_over_networks_it_shows_a_network_s_share_and_the_products_at_the_highest_rate() -> None:
    points = [Point(f"networks-{count}", {"networks": count}, {}, "measured") for count in (1, 4)]
    rates = [Limit(f"gemm_{rate}", "a matrix product", "TFLOP/s", rate, rate, rate) for rate in (50.0, 600.0)]
    run = replace(run_at(128), limits=replace(limits(), limits=rates))
    runs = {
        point.name: replace(run, problem=replace(run.problem, networks=count))
        for point, count in zip(points, (1, 4), strict=True)
    }
    results = StudyResults(study("networks", points), runs)
    stage = results.at(points[1], "naive")
    least_us = run.problem.product_operations / 600.0 / 1e6
    shown = words(drawn(results))
    assert "us/network-step, log scale" in shown
    assert f"naive  {numbers.microseconds(median_us(stage) / 4)}" in shown  # type: ignore[operator]
    assert f"products at the highest rate  {numbers.microseconds(least_us)}" in shown
    assert_texts_apart(drawn(results))


def test_several_gpus_are_counted() -> None:
    results = study_results()
    svg = drawn(StudyResults(results.study, {name: _on_two_gpus(run) for name, run in results.runs.items()}))
    assert any("2 x NVIDIA" in word for word in words(svg))


def _on_two_gpus(run: Results) -> Results:
    return replace(replace_stage(run, "bf16-gemm", group="devices"), problem=replace(run.problem, gpus=2))
