from __future__ import annotations

from itertools import pairwise

import pytest

from ladder.records.torch_run import TorchResults
from reports.figures.chart import APART, FILE, MOST_TICKS, PAGE, PHONE, SWATCH, ChartLayout, Scale
from reports.figures.torch_ladder import HEADINGS, headline, shown, torch_ladder
from stages.torch.registry import RUNGS
from tests.reports.figures.svg import SVG, assert_texts_apart, parse, words
from tests.reports.torch_sample import a_process, a_rung, a_torch_run, with_rung

RUN = a_torch_run()
ONE = a_torch_run(rungs=RUN.rungs[:1])


def every_rung(ratio: float) -> TorchResults:
    """A run of every rung, each so many times as fast as the one before, with the scatter of eager mode."""
    rungs = [
        a_rung(
            rung.name, rung.parent.name if rung.parent else None, 98_765.4 / ratio**number, spread=1.9,
            words=rung.words, changes=rung.changes, group=rung.group,
        )
        for number, rung in enumerate(RUNGS.values())
    ]  # fmt: skip
    return a_torch_run(rungs=rungs, file="a_model_with_a_rather_long_name.py")


def dots(run: TorchResults) -> dict[str, float]:
    """Where each rung's dot is drawn; the dots of headings are before the axis's first tick's row."""
    circles = [
        one
        for one in parse(torch_ladder(run, FILE).svg()).iter(f"{SVG}circle")
        if one.get("cx") != f"{FILE.left + SWATCH / 2}"
    ]
    return dict(zip([row.name for row in shown(run)], [float(one.get("cx", "nan")) for one in circles], strict=True))


@pytest.mark.parametrize("layout", [FILE, PAGE, PHONE], ids=["file", "page", "phone"])
@pytest.mark.parametrize("run", [RUN, ONE, every_rung(1.05), every_rung(1.25), every_rung(3)])
def test_no_label_covers_another_or_is_cut(run: TorchResults, layout: ChartLayout) -> None:
    assert_texts_apart(torch_ladder(run, layout).svg())


def test_a_dot_stands_further_left_the_faster_its_rung_is() -> None:
    at = dots(RUN)
    times = {row.name: row.rung.step_us or 0.0 for row in shown(RUN)}
    assert sorted(at, key=lambda name: at[name]) == sorted(times, key=lambda name: times[name])
    assert at["no-item"] - at["resident"] == pytest.approx(at["step-graph"] - at["compiled-graph"], abs=1)


def test_every_colour_that_is_drawn_has_a_heading() -> None:
    text = torch_ladder(RUN, FILE).svg()
    kinds = [heading for heading, _ in HEADINGS.values() if heading in words(text)]
    assert len(kinds) == 3
    arrows = {one.get("class") for one in parse(text).iter(f"{SVG}polyline") if one.get("stroke-width") == "2"}
    assert arrows == {f"s-{colour}" for heading, colour in HEADINGS.values() if heading in kinds}


@pytest.mark.parametrize("layout", [FILE, PHONE], ids=["file", "phone"])
def test_each_speedup_names_the_parent_and_noise_claims_none(layout: ChartLayout) -> None:
    told = words(torch_ladder(RUN, layout).svg())
    assert "5.00x over fused-optimizer" in told
    assert not any(word.endswith("x over eager") for word in told)
    assert any("eager" in word and "noise" in word for word in told)


def test_an_arrow_is_dotted_within_noise() -> None:
    arrows = parse(torch_ladder(RUN, FILE).svg()).iter(f"{SVG}polyline")
    dashed = [one.get("stroke-dasharray") for one in arrows if one.get("stroke-width") == "2"]
    assert dashed[0] == "2 3"
    assert None in dashed


def test_rungs_without_a_time_and_those_with_a_change_left_out_are_not_drawn() -> None:
    assert {row.name for row in shown(RUN)} == {
        rung.name for rung in RUN.rungs if rung.is_timed and rung.group != "left out"
    }


def test_the_headline_counts_rungs_as_exact_alone_and_claims_nothing_within_noise() -> None:
    assert (
        headline(RUN) == "compiled-graph takes 100 us per step in float32: 26.0x over eager, 10.0x over fused-optimizer"
    )
    alike = a_torch_run(rungs=RUN.rungs[:2])
    assert headline(alike) == "eager takes 2,613 us per step"
    faster = with_rung(alike, "no-item", processes=[a_process(1000.0), a_process(1010.0)])
    assert headline(faster) == "no-item takes 1,005 us per step in float32: 2.60x over eager"
    recipe = with_rung(RUN, "graphed-callables", processes=[a_process(10.0)])
    assert headline(recipe) == headline(RUN)
    assert headline(a_torch_run(rungs=[])) == "No rung was timed in this run"


@pytest.mark.parametrize("ends", [(1.0, 1.1), (1.0, 90.0), (0.5, 99_000.0), (1e-3, 1e8)])
def test_ticks_are_round_numbers_on_the_axis_with_room_between_them(ends: tuple[float, float]) -> None:
    axis = Scale.with_room(ends, 100, 500, 70)
    ticks = axis.ticks()
    places = [axis.place(tick) for tick in ticks]
    assert len(ticks) <= MOST_TICKS
    assert all(100 <= place <= 500 for place in places)
    assert all(later - earlier >= APART for earlier, later in pairwise(places))
    assert axis.place(ends[0]) == pytest.approx(170)
    assert axis.within(1e9) == 500
