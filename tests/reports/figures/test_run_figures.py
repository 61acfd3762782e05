from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import msgspec
import numpy as np
import pytest

from ladder.records.run import LossPoint, Metrics, OracleRecord
from reports.figures.run_figures import figures, loss_curves
from reports.figures.style import NEAREST
from tests.reports import sample


def test_the_same_run_gives_the_same_bytes() -> None:
    first = figures(sample.results())
    assert first == figures(sample.results())
    timelines = {f"timeline-{stage.name}.svg" for stage in sample.results().stages if stage.profiles}
    assert set(first) == {"ladder.svg", "loss_curves.svg", "waterfall.svg", "timelines.svg", *timelines}
    assert set(figures(sample.unprofiled_results())) == {"ladder.svg", "loss_curves.svg"}
    for text in first.values():
        assert "<dc:date>" not in text
        assert "Matplotlib v" not in text
        assert ElementTree.fromstring(text).tag == "{http://www.w3.org/2000/svg}svg"


def test_nothing_passed_nothing_drawn() -> None:
    assert figures(sample.nothing_passed()) == {}


def test_sparse_losses_are_points_without_a_line_between_them() -> None:
    upper, _ = loss_curves(sample.results()).axes
    lines = {line.get_label(): line for line in upper.get_lines()}
    assert np.asarray(lines["bf16-gemm"].get_xdata()).tolist() == [10, 20]
    assert lines["bf16-gemm"].get_linestyle() == "None"
    assert lines["cublas"].get_linestyle() == "-"


def test_the_lower_panel_is_the_distance_to_the_oracle() -> None:
    upper, lower = loss_curves(sample.results()).axes
    drift = {line.get_label(): line for line in upper.get_lines()}
    assert list(drift) == [
        "float64 oracle",
        "naive",
        "async",
        "cublas",
        "bf16-gemm",
        "numpy (CPU)",
        "torch-eager",
        "torch-eager-cpu",
        "torch-amp",
        "jax-scan",
    ]
    distances = [np.asarray(line.get_ydata()).tolist() for line in lower.get_lines()]
    assert distances[0] == pytest.approx([2e-7 * epoch for epoch in range(1, 21)], rel=1e-6)
    assert distances[4] == [NEAREST] * 3  # numpy equals the oracle in its three epochs


def test_sparse_stages_that_meet_in_an_epoch_stand_side_by_side() -> None:
    run = sample.results()
    sparse = next(stage for stage in run.stages if stage.name == "bf16-gemm").metrics
    _, lower = loss_curves(sample.replace_stage(run, "cublas", metrics=sparse)).axes
    assert "side by side" in lower.get_xlabel()
    places = [np.asarray(line.get_xdata()).tolist() for line in lower.get_lines()]
    assert places[0] == list(range(1, 21))
    assert places[2] == pytest.approx([9.85, 19.85])
    assert places[3] == pytest.approx([10.15, 20.15])


def test_the_title_names_the_gpu_where_there_was_one() -> None:
    run = sample.results()
    assert loss_curves(run).get_suptitle().endswith("784-256-10, batch 128, MNIST, NVIDIA H200")
    without = loss_curves(msgspec.structs.replace(run, environment={"gpu": None}))
    assert without.get_suptitle().endswith("batch 128, MNIST")


def test_without_an_oracle_there_is_one_panel() -> None:
    assert len(loss_curves(msgspec.structs.replace(sample.results(), oracle=None)).axes) == 1


def test_losses_that_are_not_finite_are_left_out() -> None:
    curve = [LossPoint(1, 0.6, 0.9), LossPoint(2, None, None), LossPoint(3, 0.3, 0.9)]
    run = sample.replace_stage(sample.results(), "naive", metrics=Metrics(None, None, curve))
    run = msgspec.structs.replace(run, oracle=OracleRecord(None, [LossPoint(1, None, None), LossPoint(3, 0.25, 0.9)]))
    upper, lower = loss_curves(run).axes
    assert np.asarray(upper.get_lines()[1].get_xdata()).tolist() == [1, 3]
    assert np.asarray(lower.get_lines()[0].get_ydata()).tolist() == pytest.approx([0.2])


def test_a_name_with_dollars_is_not_a_formula() -> None:
    run = sample.results()
    run = msgspec.structs.replace(run, problem=msgspec.structs.replace(run.problem, dataset="$\\x$", is_mnist=False))
    assert figures(run)
