"""Laws of all figures, over every recorded run and study."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from ladder.records.run import all_results, load
from reports.facts.study_points import load_results
from reports.facts.time_breakdown import chain
from reports.figures import ladder, waterfall
from reports.figures.canvas import Canvas
from reports.figures.chart import FILE, NARROW, PAGE, PHONE
from reports.figures.run_figures import drawings, study_drawings
from tests.golden.figures import canvases
from tests.reports import sample
from tests.reports.figures.svg import SVG, assert_texts_apart, parse, texts
from tests.reports.study_sample import study_results

REFERENCE = Path("results/reference")
STUDIES = sorted(path.parent for path in REFERENCE.glob("*/studies/*/study.json"))
OF_TEXT = {"paper", "ink", "faint", "grid"}  # and of lines behind it
SAMPLES = {
    "a sample": sample.results(),
    "a deeper one": sample.deeper_results(),
    "one with long names": sample.long_names(),
    "one without a rung": sample.synthetic_results(),
}


def of_run(run: Path | str) -> Iterator[tuple[str, Canvas]]:
    """Every figure of a run, and those for pages and telephones."""
    results = load(run) if isinstance(run, Path) else SAMPLES[run]
    yield from ((name, draw()) for name, draw in drawings(results).items())
    if ladder.dots(results):
        yield from ((f"ladder in {layout.width:g}", ladder.drawn(results, layout)) for layout in (PAGE, PHONE))
    if way := chain(results):
        yield "waterfall on a telephone", waterfall.drawn(results, way, PHONE)


def drawn_colours(svg: str) -> dict[str, list[tuple[float, float]]]:
    """Each colour of a shape that can be seen, with the right ends of its shapes."""
    found: dict[str, list[tuple[float, float]]] = {}
    for one in parse(svg).iter():
        get = {name: float(value) for name, value in one.attrib.items() if name in ("x", "y", "cx", "cy", "r")}
        if one.tag == f"{SVG}rect" and "x" in get and one.get("opacity") != "0":
            end = get["x"] + float(one.get("width", "nan")), get["y"] + float(one.get("height", "nan")) / 2
        elif one.tag == f"{SVG}circle":
            end = get["cx"] + get["r"], get["cy"]
        elif one.tag in (f"{SVG}polyline", f"{SVG}polygon"):
            x, y = (one.get("points") or "").split()[-1].split(",")
            end = float(x), float(y)
        else:
            continue
        for colour in {name[2:] for name in one.get("class", "").split() if name[:2] in ("f-", "s-")} - OF_TEXT:
            found.setdefault(colour, []).append(end)
    return found


def assert_every_colour_is_named(svg: str) -> None:
    """Fail if a shape's colour is neither a text's nor that of a sample right before a text."""
    named = {one.get("class", "").split()[0][2:] for one in parse(svg).iter(f"{SVG}text")}
    boxes = texts(svg)
    for colour, ends in drawn_colours(svg).items():
        beside = [1 for x, y in ends for box in boxes if 3 < box.left - x < 12 and abs(box.baseline - 4 - y) < 4]
        assert colour in named or beside, colour


def assert_readable(drawn: Iterable[tuple[str, Canvas]]) -> None:
    """Fail if a label of a drawing covers another or is cut, or if a colour is not named."""
    for name, canvas in drawn:
        try:
            assert_texts_apart(canvas.svg())
            assert_every_colour_is_named(canvas.svg())
        except AssertionError as error:
            raise AssertionError(name) from error


@pytest.mark.parametrize("run", [*SAMPLES, *all_results(REFERENCE, "**")], ids=str)
def test_the_figures_of_a_run_are_readable(run: Path | str) -> None:
    assert_readable(of_run(run))


@pytest.mark.parametrize("folder", STUDIES, ids=str)
def test_the_figures_of_a_study_are_readable(folder: Path) -> None:
    results = load_results(folder)
    assert_readable(figure for layout in (FILE, NARROW) for figure in study_drawings(results, layout))


def test_odd_drawings_are_readable() -> None:
    assert_readable((*canvases(), *study_drawings(study_results()), *study_drawings(study_results(), NARROW)))


def test_a_network_without_hidden_layers_has_no_relu() -> None:
    texts = [{name: canvas.svg() for name, canvas in of_run(run)} for run in all_results(REFERENCE, "*/logistic")]
    assert [name for text in texts for name, svg in text.items() if "ReLU" in svg] == []
    deep = {name: canvas.svg() for name, canvas in of_run(REFERENCE / "h200" / "hidden-256" / "results.json.gz")}
    assert {"waterfall.svg", "timeline-naive.svg"} <= {name for name in deep if "ReLU" in deep[name]}
