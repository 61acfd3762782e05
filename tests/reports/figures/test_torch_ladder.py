from __future__ import annotations

from itertools import pairwise

import pytest

from ladder.records.torch_run import TorchResults
from reports.figures.chart import APART, FILE, MOST_TICKS, PAGE, PHONE, ChartLayout, Scale
from reports.figures.torch_ladder import headline, torch_ladder
from stages.torch.registry import RUNGS
from tests.reports.figures.svg import assert_texts_apart
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


@pytest.mark.parametrize("layout", [FILE, PAGE, PHONE], ids=["file", "page", "phone"])
@pytest.mark.parametrize("run", [RUN, ONE, every_rung(1.05), every_rung(1.25), every_rung(3)])
def test_no_label_covers_another_or_is_cut(run: TorchResults, layout: ChartLayout) -> None:
    assert_texts_apart(torch_ladder(run, layout).svg())


def test_the_headline_counts_rungs_as_exact_alone_and_claims_nothing_within_noise() -> None:
    gains = "26.0x as fast as eager, 10.0x as fast as fused-optimizer, the tuned eager loop"
    exact = "compiled-graph, the fastest in float32, takes 100 us per step"
    assert headline(RUN) == f"{exact}: {gains}"
    alike = a_torch_run(rungs=RUN.rungs[:2])
    assert headline(alike) == "eager takes 2,613 us per step"
    faster = with_rung(alike, "no-item", processes=[a_process(400.0), a_process(404.0)])
    assert headline(faster) == "no-item takes 402 us per step in float32: 6.50x as fast as eager"
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
    assert axis.within(1e12) == 500
