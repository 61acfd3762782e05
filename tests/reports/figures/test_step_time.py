from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from msgspec.structs import replace

from ladder.records.limits_record import Limit
from ladder.records.run import Results
from ladder.records.study import Point
from reports.facts import numbers
from reports.facts.study_points import StudyResults, load_results, point_winners
from reports.facts.times import median_us
from reports.figures.lead_panels import Contest, note
from reports.figures.step_time import axis_of, step_time
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


def test_of_many_stages_only_the_fastest_rung_and_reference_of_each_point_are_drawn() -> None:
    results = load_results(Path("results/reference/h200/studies/hidden-size"))
    text, winners = drawn(results), list(point_winners(results))
    assert dots(text) == 2 * len(winners) + 2  # the key has two
    assert_texts_apart(text)
    shown = words(text)
    for winner in winners:
        assert {winner.lead.stage.name, winner.lead.reference.name} <= {*shown}
        assert Contest(0.0, winner).words in shown
    assert not any(word.startswith("torch-eager") for word in shown)
    assert "On the CPU" not in shown  # its colour is there: the host's launches have it


def test_a_lead_is_the_quotient_of_the_two_times_that_are_drawn() -> None:
    results = load_results(Path("results/reference/h200/studies/hidden-size"))
    for winner in point_winners(results):
        one = Contest(0.0, winner, networks=3)
        lead = winner.lead.ratio.times
        assert one.reference_us.median / one.rung_us.median == pytest.approx(lead, rel=5e-3)
        assert one.rung_us.median == pytest.approx(winner.lead.reference_us / lead / 3, rel=5e-3)


def test_a_lead_within_noise_is_grey_and_one_that_lacks_a_reference_says_so() -> None:
    winner = next(point_winners(load_results(Path("results/reference/h200/studies/hidden-size"))))
    ratio = dataclasses.replace(winner.lead.ratio, is_noise=True)
    noisy = dataclasses.replace(winner, lead=dataclasses.replace(winner.lead, ratio=ratio))
    lacking = dataclasses.replace(winner, missing=["torch-graph"])
    assert "Grey: within noise." in note([Contest(0.0, noisy)])
    assert Contest(0.0, lacking).words == f"≤ {Contest(0.0, winner).words}"
    assert "≤" in note([Contest(0.0, lacking)])
    assert {"Grey:", "≤:", "*:"}.isdisjoint(note([Contest(0.0, winner)]).split())


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
