from __future__ import annotations

import pytest
from msgspec.structs import replace

from ladder.records.profile import Span
from ladder.records.run import Results, StageResult
from reports.facts.profiles import timeline_name
from reports.figures import timeline_figure as timeline
from reports.figures.run_figures import drawings
from reports.figures.timeline_figure import on_one_clock, shown, with_timeline
from tests.reports import sample
from tests.reports.figures.svg import SVG, assert_texts_apart, parse, words

RUN = sample.results()
AXIS = timeline.RIGHT - timeline.LEFT  # pixels that three steps of one stage take


def stage(name: str, run: Results = RUN) -> StageResult:
    return next(stage for stage in run.stages if stage.name == name)


def with_spans(name: str, spans: list[Span], us: float) -> Results:
    seen = replace(stage(name).profiles[0], timeline=spans, timeline_us=us)
    return sample.replace_stage(RUN, name, profiles=[seen])


def step_us(name: str, run: Results = RUN) -> float:
    timing = stage(name, run).timing
    assert timing is not None
    return timing.step_us


def bars(svg: str, colour: str) -> list[tuple[float, float]]:
    """Where the bars of a colour begin and end; those of the legend and the paper are left out."""
    return [
        (float(one.get("x", "nan")), float(one.get("x", "nan")) + float(one.get("width", "nan")))
        for one in parse(svg).iter(f"{SVG}rect")
        if one.get("class") == f"f-{colour}" and one.get("height") not in ("11", "100%")
    ]


def test_no_text_lies_on_another_or_outside() -> None:
    for one in with_timeline(RUN):
        assert_texts_apart(on_one_clock([shown(one)], RUN).svg())
    long = sample.long_names()
    for one in with_timeline(long):
        assert_texts_apart(on_one_clock([shown(one)], long).svg())


@pytest.mark.parametrize("us", [1e-9, 1e12, 1e41])  # 1e41: the record says 1e35 seconds
def test_steps_of_any_length_are_drawn(us: float) -> None:
    profiles = [replace(one, plain_step_us=us) for one in stage("async").profiles]
    timing = stage("async").timing
    assert timing is not None
    timing = replace(timing, step_us=us)
    run = sample.replace_stage(RUN, "async", profiles=profiles, timing=timing)
    assert step_us("async", run) == us
    parse(on_one_clock([shown(stage("async", run))], run).svg())


def test_bars_stand_where_they_were_seen_in_the_colour_of_their_kind() -> None:
    run = with_spans(
        "async",
        [Span("host", "cuLaunchKernelEx", "launch", 0.0, 3.0), Span("gpu", "gemm_naive", "gemm", 4.0, 20.0),
         Span("gpu", "sgd_update", "update", 25.0, 1.0)],
        30.0,
    )  # fmt: skip
    drawn = on_one_clock([shown(stage("async", run))], run).svg()
    begin, scale = timeline.LEFT, AXIS / 30.0
    assert bars(drawn, "idle") == [pytest.approx((begin, timeline.RIGHT))] * 2
    assert bars(drawn, "host") == [pytest.approx((begin, begin + 3 * scale), abs=0.11)]
    assert bars(drawn, "gemm") == [pytest.approx((begin + 4 * scale, begin + 24 * scale), abs=0.11)]
    assert bars(drawn, "update") == [pytest.approx((begin + 25 * scale, begin + 26 * scale), abs=0.11)]
    assert words(drawn)[-4:] == ["matrix product", "update", "host: launch", "idle; host: own code"]


def test_names_stand_only_where_there_is_room_and_in_the_outer_of_two_bars() -> None:
    run = with_spans(
        "async",
        [Span("gpu", "gemm_naive", "gemm", 0.0, 20.0), Span("gpu", "sgd_update", "update", 25.0, 1.0),
         Span("gpu", "a_name_that_is_longer_than_its_bar", "other", 40.0, 12.0),
         Span("host", "cudaLaunchKernel", "launch", 0.0, 50.0), Span("host", "cuLaunchKernel", "launch", 5.0, 40.0)],
        100.0,
    )  # fmt: skip
    inside = [
        one.text
        for one in parse(on_one_clock([shown(stage("async", run))], run).svg()).iter(f"{SVG}text")
        if "inside" in (one.get("class") or "").split()
    ]
    assert inside == ["cudaLaunchKernel", "gemm_naive", "a_name…"]


def test_two_stages_share_a_clock() -> None:
    found = [shown(stage("naive")), shown(stage("async"))]
    drawn = on_one_clock(found, RUN).svg()
    assert_texts_apart(drawn)
    lengths = [end - begin for begin, end in bars(drawn, "idle")]
    assert lengths == pytest.approx([AXIS, AXIS, AXIS / 2, AXIS / 2], rel=1e-3)


def test_on_a_page_a_group_says_where_the_bars_go() -> None:
    run = with_spans("async", [Span("gpu", "gemm_naive", "gemm", 4.0, 20.0)], 30.0)
    text = on_one_clock([shown(stage("async", run))], run, is_page=True).inline()
    host, gpu = (one for one in parse(text).iter(f"{SVG}g") if one.get("data-bars") == "async")
    assert (host.get("data-row"), gpu.get("data-row")) == ("host", "gpu")
    left, scale = (float(gpu.get(f"data-{name}", "nan")) for name in ("left", "scale"))
    ((begin, end),) = bars(on_one_clock([shown(stage("async", run))], run).svg(), "gemm")
    assert (left + 4 * scale, left + 24 * scale) == pytest.approx((begin, end), abs=0.11)
    assert bars(text, "gemm") == []


def test_the_title_says_stage_time_and_the_axis_the_tool() -> None:
    drawn = words(on_one_clock([shown(stage("naive"))], RUN).svg())
    assert drawn[0] == "Three steps of naive, 85.5 us/step"
    assert "us, scaled to the timed step; profiled by CUPTI, under which a step takes 10% longer" in drawn


def test_a_stage_without_bars_has_no_timeline() -> None:
    assert timeline_name(stage("naive")) == "timeline-naive.svg"
    assert "async" not in [one.name for one in with_timeline(with_spans("async", [], 0.0))]
    with pytest.raises(ValueError, match="torch-amp has no profile"):
        on_one_clock([shown(stage("torch-amp"))], RUN).svg()


def epoch_kernel(kernels_per_step: float) -> Results:
    """The run with one stage whose kernel runs many steps, so that its profile shows no step."""
    seen = replace(stage("async").profiles[0], timeline=[], timeline_us=0.0, kernels_per_step=kernels_per_step)
    return sample.replace_stage(RUN, "async", profiles=[seen])


@pytest.mark.parametrize(("kernels", "label"), [(1, "one kernel"), (2, "2 kernels")])
def test_a_kernel_that_runs_an_epoch_is_a_pale_bar_of_three_timed_steps(kernels: int, label: str) -> None:
    run = epoch_kernel(kernels / 468)
    assert "async" in [one.name for one in with_timeline(run)]
    drawn = on_one_clock([shown(stage("naive")), shown(stage("async", run))], run).svg()
    (pale,) = (one for one in parse(drawn).iter(f"{SVG}rect") if one.get("opacity") and one.get("height") != "11")
    share = step_us("async") / step_us("naive")
    assert float(pale.get("width", "nan")) / AXIS == pytest.approx(share, rel=1e-3)
    assert {f"{label} per epoch: 42.7 us per step", "many steps in one kernel"} <= set(words(drawn))
    assert_texts_apart(drawn)


def test_a_faster_rung_is_never_drawn_longer_whatever_its_profile_stretched() -> None:
    (seen,) = stage("async").profiles
    stretched = replace(seen, timeline_us=seen.timeline_us * 10)

    def lengths(run: Results) -> list[tuple[float, float]]:
        return bars(on_one_clock([shown(stage(name, run)) for name in ("naive", "async")], run).svg(), "idle")

    assert lengths(sample.replace_stage(RUN, "async", profiles=[stretched])) == lengths(RUN)


def figures(run: Results) -> dict[str, str]:
    return {name: draw().svg() for name, draw in drawings(run).items()}


def test_the_same_run_gives_the_same_bytes() -> None:
    first = figures(sample.results())
    assert first == figures(sample.results())
    timelines = {f"timeline-{stage.name}.svg" for stage in sample.results().stages if stage.profiles}
    assert set(first) == {"ladder.svg", "loss_distance.svg", "waterfall.svg", *timelines}
    assert set(figures(sample.unprofiled_results())) == {"ladder.svg", "loss_distance.svg"}


def test_text_stays_text_with_a_title_and_colours_for_dark_pages() -> None:
    for name, text in figures(sample.results()).items():
        root = parse(text)
        assert root.findtext(f"{SVG}title"), name
        assert root.findtext(f"{SVG}desc"), name
        assert "@media (prefers-color-scheme: dark)" in text
        assert [one for one in root.iter(f"{SVG}text") if one.text], name


def test_nothing_passed_nothing_drawn() -> None:
    assert figures(sample.nothing_passed()) == {}
