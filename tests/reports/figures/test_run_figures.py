from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Callable

import matplotlib as mpl
import msgspec
import numpy as np
import pytest
from matplotlib.container import BarContainer, ErrorbarContainer
from matplotlib.figure import Figure

from ladder.records.run import LossPoint, Metrics, OracleRecord, Results
from reports.figures.run_figures import HATCHES, epoch_time, figures, loss_curves
from reports.figures.style import NEAREST, STYLE
from tests.reports import sample


def test_the_same_run_gives_the_same_bytes() -> None:
    first = figures(sample.results())
    assert first == figures(sample.results())
    timelines = {f"timeline-{stage.name}.svg" for stage in sample.results().stages if stage.profiles}
    assert set(first) == {"epoch_time.svg", "loss_curves.svg", "waterfall.svg", "timelines.svg", *timelines}
    assert set(figures(sample.unprofiled_results())) == {"epoch_time.svg", "loss_curves.svg"}
    for text in first.values():
        assert "<dc:date>" not in text
        assert "Matplotlib v" not in text
        assert ElementTree.fromstring(text).tag == "{http://www.w3.org/2000/svg}svg"


def test_nothing_passed_nothing_drawn() -> None:
    assert figures(sample.nothing_passed()) == {}


def test_bars_stand_in_the_order_of_the_table_and_rows_without_a_time_keep_their_place() -> None:
    axes = epoch_time(sample.results()).axes[0]
    labels = [tick.get_text() for tick in axes.get_yticklabels()]
    assert labels[:2] == ["naive", "async"]
    assert labels[-1] == "jax-scan"
    assert len(labels) == 12
    assert len(axes.patches) == 9
    words = [text.get_text() for text in axes.texts]
    assert words == [
        "40.0",
        "20.0",
        "17.2 (throttled)",
        "failed",
        "crashed",
        "skipped",
        "21.5",
        "606",
        "200",
        "400",
        "100",
        "25.0",
    ]


def test_a_bar_ends_at_the_median_and_its_whiskers_at_the_extremes() -> None:
    axes = epoch_time(sample.results()).axes[0]
    bar, whiskers = axes.containers[:2]
    assert isinstance(bar, BarContainer)
    assert isinstance(whiskers, ErrorbarContainer)
    assert bar.patches[0].get_x() + bar.patches[0].get_width() == pytest.approx(40.0)
    (whisker,) = whiskers.lines[2]
    assert whisker.get_segments()[0][:, 0] == pytest.approx([39.6, 42.0])


@pytest.mark.parametrize("run", [sample.results(), sample.synthetic_results(), sample.long_names()])
def test_no_text_lies_on_another_or_outside(run: Results) -> None:
    with mpl.rc_context(STYLE):
        figure = epoch_time(run)
        figure.draw_without_rendering()
        axes = figure.axes[0]
        boxes = [text.get_window_extent() for text in (*axes.texts, *axes.get_yticklabels(), axes.xaxis.label)]
        boxes += [text.get_window_extent() for text in figure.legends[0].get_texts()]
    for index, box in enumerate(boxes):
        assert figure.bbox.x0 <= box.x0 < box.x1 <= figure.bbox.x1
        assert not any(box.overlaps(other) for other in boxes[index + 1 :])


def test_bars_of_reduced_precision_are_hatched_with_a_legend() -> None:
    run = sample.replace_stage(sample.results(), "async", precision="tf32")
    figure = epoch_time(run)
    hatches = [patch.get_hatch() for patch in figure.axes[0].patches]
    assert hatches == [None, HATCHES["tf32"], None, HATCHES["bf16/fp16"], None, None, None, HATCHES["bf16/fp16"], None]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["rung", "reference", "tf32", "bf16/fp16"]
    plain = [text.get_text() for text in epoch_time(sample.synthetic_results()).legends[0].get_texts()]
    assert plain == ["rung", "reference"]


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


@pytest.mark.parametrize("draw", [epoch_time, loss_curves])
def test_the_title_names_the_gpu_where_there_was_one(draw: Callable[[Results], Figure]) -> None:
    run = sample.results()
    assert draw(run).get_suptitle().endswith("784-256-10, batch 128, MNIST, NVIDIA H200")
    assert draw(msgspec.structs.replace(run, environment={"gpu": None})).get_suptitle().endswith("batch 128, MNIST")


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
