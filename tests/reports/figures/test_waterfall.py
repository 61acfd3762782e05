from __future__ import annotations

import itertools

import matplotlib as mpl
import pytest

from ladder.records.profile import Split
from reports.facts.time_breakdown import chain
from reports.figures.style import STYLE
from reports.figures.waterfall import bars, waterfall
from tests.reports import sample
from tests.reports.profiles import own_kernels, profile

RUN = sample.results()


def test_the_bars_lead_from_the_first_time_to_the_last_without_a_gap() -> None:
    found = list(bars(chain(RUN)))
    steps = [bar for bar in found if bar.is_step]
    assert [bar.name for bar in steps] == [
        "naive", "async", "cublas", "bf16-gemm",
    ]  # fmt: skip
    for before, after in itertools.pairwise(found):
        if after.is_step:
            assert after.begin == 0
            assert after.end == pytest.approx(before.end, abs=0.15)  # parts that round to zero are left out
        else:
            assert after.begin == pytest.approx(before.end, abs=0.15)


def test_a_part_that_did_not_change_has_no_bar_and_the_rest_has_one() -> None:
    names = [bar.name for bar in bars(chain(RUN))]
    after = names[names.index("cublas") :]
    assert after == ["cublas", "host launching", "rest", "bf16-gemm"]


def test_bars_are_drawn_from_their_begin_to_their_end_and_labelled_with_the_change() -> None:
    axes = waterfall(RUN).axes[0]
    found = list(bars(chain(RUN)))
    drawn = [(patch.get_x(), patch.get_x() + patch.get_width()) for patch in axes.patches]  # type: ignore[attr-defined]
    for bar, place in zip(found, drawn, strict=True):
        assert place == pytest.approx(sorted((bar.begin, bar.end)))
    words = [text.get_text() for text in axes.texts]
    assert words[:6] == ["85.5", "-2.0", "-1.0", "-2.0", "-17.5", "-19.9"]
    hatched = [patch.get_hatch() is not None for patch in axes.patches]
    assert hatched == [bar.name == "rest" for bar in found]


def test_no_text_lies_on_another_or_outside() -> None:
    # A rung whose parts reach far to both sides, and below zero.
    run = sample.replace_stage(RUN, "async", profiles=[profile(Split(1.0, 0.0, 4.0, 900.0, 0.1), own_kernels())])
    for one in (RUN, run):
        with mpl.rc_context(STYLE):
            figure = waterfall(one)
            figure.draw_without_rendering()
            axes = figure.axes[0]
            texts = [*axes.texts, *axes.get_yticklabels(), axes.xaxis.label]
            boxes = [text.get_window_extent() for text in texts]
        for index, box in enumerate(boxes):
            assert figure.bbox.x0 <= box.x0 < box.x1 <= figure.bbox.x1
            assert not any(box.overlaps(other) for other in boxes[index + 1 :])


def test_a_stage_may_be_called_like_a_part() -> None:
    run = sample.replace_stage(sample.replace_stage(RUN, "async", name="kernels"), "cublas", below="kernels")
    assert [bar.is_step for bar in bars(chain(run))] == [bar.is_step for bar in bars(chain(RUN))]
    assert len(waterfall(run).axes[0].patches) == len(waterfall(RUN).axes[0].patches)
