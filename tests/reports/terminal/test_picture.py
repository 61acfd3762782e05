from __future__ import annotations

import re
from pathlib import Path

import pytest

from ladder.records.run import Results, load
from reports.figures.ladder import dots
from reports.terminal.picture import print_picture
from tests.reports import sample
from tests.reports.terminal.screens import screen, too_wide

RECORDED = Path(__file__).parents[3] / "results" / "reference" / "h200"
LOGISTIC = RECORDED / "logistic"


def picture(run: Results, width: int = 80, encoding: str = "utf-8") -> str:
    return screen(lambda console: print_picture(run, console), width, encoding=encoding)


def line_of(text: str, name: str) -> str:
    return next(line for line in text.splitlines() if line.split()[:1] == [name])


@pytest.mark.parametrize("folder", sorted(RECORDED.glob("*/results.json.gz")), ids=lambda path: path.parent.name)
def test_it_fits_and_has_a_dot_for_every_rung(folder: Path) -> None:
    run = load(folder)
    for width in (20, 40, 80, 200):
        text = picture(run, width)
        assert width == 20 or too_wide(text, width) == []
        assert all(line_of(text, dot.stage.name).count("●") == 1 for dot in dots(run))
    assert len(line_of(picture(run), "us/step").split()) >= 3


def test_dots_stand_in_the_order_of_their_times() -> None:
    run = load(LOGISTIC)
    text = picture(run)
    shown = sorted(dots(run), key=lambda dot: dot.step_us.median)
    places = [line_of(text, dot.stage.name).index("●") for dot in shown]
    assert places == sorted(places)
    assert places[0] < places[-1] == 79  # the axis takes the whole width


def test_a_way_leads_from_the_parents_place_to_the_dot() -> None:
    run = load(LOGISTIC)
    text = picture(run)
    parent, own = line_of(text, "cuda-graph"), line_of(text, "persistent-cluster")
    assert own.rindex("─") == parent.index("●")
    assert "─" not in line_of(text, "naive")  # climbs from none
    assert [dot.stage.name for dot in dots(run) if dot.is_noise and "─" in line_of(text, dot.stage.name)] == []
    slower = line_of(picture(sample.with_processes(run, "cublas", [150.0, 151.0])), "cublas")
    assert slower.index("─") < slower.index("●")


def test_the_axis_has_round_numbers_at_their_places() -> None:
    text = picture(load(LOGISTIC))
    axis = line_of(text, "us/step")
    assert axis.split() == ["us/step", "2", "5", "10", "20", "50"]
    assert line_of(text, "cuda-graph").index("●") < axis.index("20") < line_of(text, "sparse-metrics").index("●")


def test_the_reference_has_a_line_and_a_key() -> None:
    text = picture(load(LOGISTIC))
    assert {line.index("┊") for line in text.splitlines()[:-2] if "┊" in line} == {text.splitlines()[2].index("┊")}
    told = r"┊ the fastest reference, (torch-graph|jax-scan) \(float32\): (8|9)\.\d\d us\."
    assert re.search(told, " ".join(text.split()))


def test_words_stand_beside_the_chart_where_there_is_room() -> None:
    assert "one launch an epoch" in picture(load(LOGISTIC), 120)
    assert "one launch an epoch" not in picture(load(LOGISTIC), 80)


def test_ascii_where_nothing_else_can_be_shown() -> None:
    text = picture(load(LOGISTIC), encoding="ascii")
    assert re.search(r"o-{12,18}$", line_of(text, "cuda-graph"))


def test_a_run_of_references_alone_has_one_group_and_one_without_times_no_picture() -> None:
    text = picture(sample.synthetic_results())
    assert "References" in text
    assert "●" in line_of(text, "numpy")
    assert picture(sample.nothing_passed()) == ""
