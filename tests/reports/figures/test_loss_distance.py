from __future__ import annotations

import pytest

from ladder.records.run import Check, Results
from reports.figures.canvas import Canvas, round_step
from reports.figures.loss_distance import loss_distance, loss_distances
from reports.figures.style import THEME
from tests.reports import sample
from tests.reports.figures.svg import SVG, assert_texts_apart, parse, words

RUN = sample.results()


def checked(error: float | None, limit: float) -> Results:
    """The run where naive alone has a checked loss curve, with this error."""
    run = RUN
    for stage in RUN.stages:
        run = sample.replace_stage(run, stage.name, checks=[])
    passed = error is not None and error <= limit
    return sample.replace_stage(run, "naive", checks=[Check("loss curve", error, limit, passed=passed)])


def test_every_checked_loss_curve_has_a_row_in_table_order() -> None:
    names = [one.stage.name for one in loss_distances(RUN)]
    assert names[:4] == ["naive", "async", "cublas", "sparse-metrics"]
    shown = words(loss_distance(RUN).svg())
    assert [word for word in shown if word in names] == [name for name in names if name in shown]
    assert "2.5x below" in shown  # naive: 4e-6 of 1e-5


def test_a_dot_left_of_its_limit_is_within_it() -> None:
    for error, is_left in ((1e-6, True), (1e-4, False)):
        root = parse(loss_distance(checked(error, 1e-5)).svg())
        dot = root.find(f"{SVG}circle")
        (limit,) = [
            one
            for one in root.iter(f"{SVG}polyline")
            if one.get("stroke-width") == "3" and "s-limit" in (one.get("class") or "")
        ]
        assert dot is not None
        at = float((limit.get("points") or "").partition(",")[0])
        assert (float(dot.get("cx", "nan")) < at) is is_left


def test_a_curve_outside_its_limit_is_the_headline() -> None:
    shown = words(loss_distance(checked(2e-5, 1e-5)).svg())
    assert shown[0] == "1 of 1 loss curve left the float64 oracle's by more than the limit"
    assert "2x above" in shown
    assert words(loss_distance(checked(2e-6, 1e-5)).svg())[0].startswith("Every loss curve stays within its limit")
    assert THEME["limit"] not in [values for name, values in THEME.items() if name != "limit"]


def test_a_loss_without_a_difference_has_no_dot_and_no_factor() -> None:
    text = loss_distance(checked(0.0, 1e-5)).svg()
    assert parse(text).find(f"{SVG}circle") is None
    assert words(text)[0].endswith("(1 of 1; 1 without any difference)")
    assert "no difference" in words(text)
    assert "3,000,000x below" in words(loss_distance(checked(1e-9, 3e-3)).svg())


def test_a_loss_that_is_not_finite_has_no_dot() -> None:
    text = loss_distance(checked(None, 1e-5)).svg()
    assert parse(text).find(f"{SVG}circle") is None
    assert "not finite" in words(text)


@pytest.mark.parametrize(
    "run",
    [checked(0.0, 1e-5), checked(None, 1.0)],
)
def test_distances_are_readable(run: Results) -> None:
    assert_texts_apart(loss_distance(run).svg())


def canvas() -> Canvas:
    drawn = Canvas(100, 50, "A < B", 'times & "ratios"')
    drawn.text(10, 20, "a < b", anchor="end", look="bold")
    drawn.line([(0.04, 1), (99.96, 1.26)], "host", dash="2 3")
    drawn.dot(-0.01, 3, 4, "kernels")
    return drawn


def test_text_stays_text_and_places_are_rounded() -> None:
    text = canvas().svg()
    assert words(text) == ["a < b"]
    root = parse(text)
    assert (root[0].tag, root[0].text) == (f"{SVG}title", "A < B")  # first, for screen readers
    assert (root[1].tag, root[1].text, root.get("role")) == (f"{SVG}desc", 'times & "ratios"', "img")
    line, dot = root.find(f"{SVG}polyline"), root.find(f"{SVG}circle")
    assert line is not None
    assert dot is not None
    assert line.get("points") == "0,1 100,1.3"
    assert dot.get("cx") == "0"  # not -0


def test_every_colour_has_a_value_for_light_and_for_dark_pages() -> None:
    style = parse(canvas().svg()).findtext(f"{SVG}style") or ""
    light, dark = style.split("@media (prefers-color-scheme: dark)")
    for name, values in THEME.items():
        assert f".f-{name}{{fill:{values[0]}}}" in light
        assert f".f-{name}{{fill:{values[1]}}}" in dark
    assert len({light for light, _ in THEME.values()}) == len({dark for _, dark in THEME.values()}) == len(THEME)


@pytest.mark.parametrize("most", [6, 9])
@pytest.mark.parametrize("length", [1e-308, 1e-9, 0.7, 9.0, 10.0, 449.9, 1e12, 2.7e41, 1e100])
def test_a_step_is_round_and_the_least_of_which_few_enough_fit(length: float, most: int) -> None:
    assert round_step(0.0, most) > 0
    step = round_step(length, most)
    assert length / step < most
    assert f"{step:.3e}"[:5] in ("1.000", "2.000", "5.000")
    assert length < 1e-300 or length / (step / 2.5) >= most * 0.999
