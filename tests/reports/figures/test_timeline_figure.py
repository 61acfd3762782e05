from __future__ import annotations

import pytest
from msgspec.structs import replace

from ladder.records.profile import Span
from ladder.records.run import Results, StageResult
from reports.facts.profiles import timeline_name
from reports.figures.timeline_figure import on_one_clock, shown, with_timeline
from tests.reports import sample
from tests.reports.figures.svg import SVG, parse

RUN = sample.results()


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


@pytest.mark.parametrize("us", [1e-9, 1e12, 1e41])  # 1e41: the record says 1e35 seconds
def test_steps_of_any_length_are_drawn(us: float) -> None:
    profiles = [replace(one, plain_step_us=us) for one in stage("async").profiles]
    timing = stage("async").timing
    assert timing is not None
    timing = replace(timing, step_us=us)
    run = sample.replace_stage(RUN, "async", profiles=profiles, timing=timing)
    assert step_us("async", run) == us
    parse(on_one_clock([shown(stage("async", run))], run).svg())


def test_a_stage_without_bars_has_no_timeline() -> None:
    assert timeline_name(stage("naive")) == "timeline-naive.svg"
    assert "async" not in [one.name for one in with_timeline(with_spans("async", [], 0.0))]
    with pytest.raises(ValueError, match="torch-amp has no profile"):
        on_one_clock([shown(stage("torch-amp"))], RUN).svg()


def test_a_faster_rung_is_never_drawn_longer_whatever_its_profile_stretched() -> None:
    (seen,) = stage("async").profiles
    stretched = replace(seen, timeline_us=seen.timeline_us * 10)

    def lengths(run: Results) -> list[tuple[float, float]]:
        return bars(on_one_clock([shown(stage(name, run)) for name in ("naive", "async")], run).svg(), "idle")

    assert lengths(sample.replace_stage(RUN, "async", profiles=[stretched])) == lengths(RUN)


def test_the_busy_share_of_the_bars_counts_overlapping_ones_once() -> None:
    spans = [Span("gpu", "product", "gemm", begin, us) for begin, us in ((0.0, 50.0), (25.0, 10.0), (75.0, 25.0))]
    run = with_spans("async", spans, 100.0)
    assert "of these bars: 75%." in on_one_clock([shown(stage("async", run))], run).svg()
