from __future__ import annotations

import matplotlib as mpl
import msgspec
import numpy as np
import pytest
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from ladder.records.profile import Span
from ladder.records.run import Results, StageResult
from reports.facts.profiles import timeline_name
from reports.figures.style import KIND_COLOURS, STYLE
from reports.figures.timeline import left_out, stage_timeline, timelines, with_timeline
from tests.reports import sample

RUN = sample.results()


def stage(name: str, run: Results = RUN) -> StageResult:
    return next(stage for stage in run.stages if stage.name == name)


def with_spans(name: str, spans: list[Span], us: float) -> Results:
    seen = msgspec.structs.replace(stage(name).profiles[0], timeline=spans, timeline_us=us)
    return sample.replace_stage(RUN, name, profiles=[seen])


def step_us(name: str, run: Results = RUN) -> float:
    timing = stage(name, run).timing
    assert timing is not None
    return timing.step_us


def bars(figure: Figure) -> list[PolyCollection]:
    return [one for one in figure.axes[0].collections if isinstance(one, PolyCollection)]


def ends(bar: PolyCollection) -> list[tuple[float, float]]:
    corners = [np.asarray(path.vertices)[:, 0] for path in bar.get_paths()]
    return [(float(x.min()), float(x.max())) for x in corners]


def assert_texts_apart(figure: Figure) -> None:
    with mpl.rc_context(STYLE):
        figure.draw_without_rendering()
        axes = figure.axes[0]
        ticks = [tick for tick in axes.get_xticklabels() if tick.get_position()[0] <= axes.get_xlim()[1]]
        found = [*axes.texts, *ticks, axes.xaxis.label, *figure.texts, *figure.legends[0].get_texts()]
        boxes = [(text.get_text(), text.get_window_extent()) for text in found if text.get_text()]
    for index, (name, box) in enumerate(boxes):
        assert figure.bbox.x0 <= box.x0 < box.x1 <= figure.bbox.x1, name
        assert figure.bbox.y0 <= box.y0 < box.y1 <= figure.bbox.y1, name
        assert not [other for other, its in boxes[index + 1 :] if box.overlaps(its)], name


@pytest.mark.parametrize("name", [stage.name for stage in with_timeline(RUN)])
def test_no_text_of_a_stage_lies_on_another_or_outside(name: str) -> None:
    assert_texts_apart(stage_timeline(stage(name), RUN))


@pytest.mark.parametrize("run", [RUN, sample.long_names()])
def test_no_text_of_all_stages_lies_on_another_or_outside(run: Results) -> None:
    assert_texts_apart(timelines(run))


def test_bars_stand_where_they_were_seen_in_the_colour_of_their_kind() -> None:
    run = with_spans(
        "async",
        [Span("host", "cuLaunchKernelEx", "launch", 0.0, 3.0), Span("gpu", "gemm_naive", "gemm", 4.0, 20.0),
         Span("gpu", "sgd_update", "update", 25.0, 1.0)],
        30.0,
    )  # fmt: skip
    figure = stage_timeline(stage("async", run), run)
    idle, host, idle_too, gpu = bars(figure)
    scale = 3 * step_us("async") / 30.0
    assert ends(idle)[0] == ends(idle_too)[0] == pytest.approx((0.0, 3 * step_us("async")))
    assert ends(host)[0] == pytest.approx((0.0, 3.0 * scale))
    assert np.asarray(ends(gpu)) == pytest.approx(np.asarray([(4.0, 24.0), (25.0, 26.0)]) * scale)
    assert [to_hex(colour) for colour in np.asarray(gpu.get_facecolor())] == [
        KIND_COLOURS["gemm"],
        KIND_COLOURS["update"],
    ]
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert legend == ["matrix product", "update", "host: launch", "idle; host: own code"]


def test_names_stand_only_where_there_is_room_and_in_the_outer_of_two_bars() -> None:
    run = with_spans(
        "async",
        [Span("gpu", "gemm_naive", "gemm", 0.0, 20.0), Span("gpu", "sgd_update", "update", 25.0, 1.0),
         Span("gpu", "a_name_that_is_longer_than_its_bar", "other", 40.0, 12.0),
         Span("host", "cudaLaunchKernel", "launch", 0.0, 50.0), Span("host", "cuLaunchKernel", "launch", 5.0, 40.0)],
        100.0,
    )  # fmt: skip
    words = [text.get_text() for text in stage_timeline(stage("async", run), run).axes[0].texts]
    assert words == ["cudaLaunchKernel", "host", "gemm_naive", "a_name_that_is…", "GPU"]


def test_the_title_says_stage_time_and_the_axis_the_tool() -> None:
    figure = stage_timeline(stage("naive"), RUN)
    assert figure.get_suptitle().startswith("Three steps of naive, 85.5 us/step")
    assert (
        figure.axes[0].get_xlabel()
        == "us, scaled to the timed step; profiled by CUPTI, under which a step takes 10% longer"
    )


def test_all_stages_share_an_axis_that_ends_with_the_slowest_rung() -> None:
    figure = timelines(RUN)
    rungs = ("naive", "async", "cublas", "bf16-gemm")
    assert figure.axes[0].get_xlim() == pytest.approx((0.0, 3 * max(step_us(name) for name in rungs)))
    words = [text.get_text() for text in figure.axes[0].texts]
    assert words[:4] == ["naive", "85.5", "async", "42.7"]
    assert words[8:11] == ["torch-eager", "427 ▸", "jax-scan"]


def test_a_rule_stands_between_the_rungs_and_the_references_only() -> None:
    assert len(timelines(RUN).axes[0].get_lines()) == 1
    only = msgspec.structs.replace(RUN, stages=[one for one in RUN.stages if one.group == "reference"])
    assert timelines(only).axes[0].get_lines() == []


def test_a_stage_without_bars_has_no_timeline() -> None:
    assert timeline_name(stage("naive")) == "timeline-naive.svg"
    assert "async" not in [one.name for one in with_timeline(with_spans("async", [], 0.0))]
    with pytest.raises(ValueError, match="torch-amp has no profile"):
        stage_timeline(stage("torch-amp"), RUN)


def epoch_kernel(kernels_per_step: float) -> Results:
    """The run with one stage whose kernel runs many steps, so that its profile shows no step."""
    shown = msgspec.structs.replace(
        stage("async").profiles[0], timeline=[], timeline_us=0.0, kernels_per_step=kernels_per_step
    )
    return sample.replace_stage(RUN, "async", profiles=[shown])


@pytest.mark.parametrize(("kernels", "label"), [(1, "one kernel"), (2, "2 kernels")])
def test_a_kernel_that_runs_an_epoch_is_a_hatched_bar_of_three_timed_steps(kernels: int, label: str) -> None:
    run = epoch_kernel(kernels / 468)
    assert "async" in [one.name for one in with_timeline(run)]
    timing = stage("async", run).timing
    assert timing is not None
    alone, everyone = stage_timeline(stage("async", run), run), timelines(run)
    assert alone.axes[0].get_xlim() == pytest.approx((0, 3 * timing.step_us))
    for figure in (alone, everyone):
        (hatched,) = [bar for bar in bars(figure) if bar.get_hatch()]
        assert ends(hatched)[0] == pytest.approx((0.0, 3 * timing.step_us))
        assert f"{label} an epoch: 42.7 us a step" in [text.get_text() for text in figure.axes[0].texts]
        assert "many steps in one kernel" in [text.get_text() for text in figure.legends[0].get_texts()]
        assert_texts_apart(figure)


def test_stages_without_a_timeline_are_named_with_the_reason() -> None:
    run = sample.replace_stage(RUN, "async", profiles=[], unprofiled={"cupti": "it crashed"})
    assert "async (it crashed)" in left_out(run)
    assert "numpy (on the CPU)" in left_out(run)
    assert not [one for one in left_out(run) if one.startswith("naive")]
    figure = timelines(run)
    said = " ".join(figure.axes[0].get_xlabel().split())
    assert f"no timeline: {', '.join(left_out(run))}" in said
    assert_texts_apart(figure)


def test_a_faster_rung_is_never_drawn_longer_whatever_its_profile_stretched() -> None:
    (shown,) = stage("async").profiles
    stretched = msgspec.structs.replace(shown, timeline_us=shown.timeline_us * 10)
    figure = timelines(sample.replace_stage(RUN, "async", profiles=[stretched]))
    lengths = [ends(bar)[0][1] for bar in bars(figure) if ends(bar)[0][0] == 0 and len(ends(bar)) == 1]
    assert lengths[0] == pytest.approx(3 * step_us("naive"))
    assert 3 * step_us("async") in [pytest.approx(length) for length in lengths]
    assert max(lengths) == pytest.approx(3 * step_us("naive"))
