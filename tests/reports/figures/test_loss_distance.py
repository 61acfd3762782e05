from __future__ import annotations

import pytest

from reports.figures.canvas import Canvas, round_step
from reports.figures.style import THEME
from tests.reports.figures.svg import SVG, parse, words


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
