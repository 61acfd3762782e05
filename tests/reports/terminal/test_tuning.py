from __future__ import annotations

import io
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import msgspec
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from rich.console import Console

from ladder.records.tuning import TuningRecord, load_tuning, save_tuning
from reports.figures.heat_map import LEFT_OUT, STEPS, heat_map, svg
from reports.figures.style import CHOSEN
from reports.terminal.tuning import outcome, print_tuning
from tests.reports.tuning_sample import REFUSED, tuning


def printed(record: TuningRecord, width: int = 100) -> str:
    file = io.StringIO()
    print_tuning(record, Path("runs/tune-1"), Console(file=file, width=width))
    return file.getvalue()


def cells(figure: Figure, panel: int) -> list[Rectangle]:
    return [patch for patch in figure.axes[panel].patches if isinstance(patch, Rectangle) and patch.get_fill()]


def frames(figure: Figure, panel: int) -> list[Rectangle]:
    return [patch for patch in figure.axes[panel].patches if isinstance(patch, Rectangle) and not patch.get_fill()]


def test_the_same_tuning_gives_the_same_bytes() -> None:
    text = svg(heat_map(tuning()))
    assert text == svg(heat_map(tuning()))
    assert ElementTree.fromstring(text).tag == "{http://www.w3.org/2000/svg}svg"
    assert 'fill="#ffffff"' in text or "fill: #ffffff" in text  # opaque, so text is readable on a dark page


def test_every_kernel_and_size_has_a_panel_with_a_cell_for_each_shape() -> None:
    record = tuning()
    figure = heat_map(record)
    wide_first = sorted(record.kernels, key=lambda kernel: kernel.kernel != "gemm_naive")
    titles = [axes.get_title(loc="left").replace("\n", " ") for axes in figure.axes]
    assert titles == [f"{kernel.kernel} {kernel.sizes}" for kernel in wide_first]
    for panel, kernel in enumerate(wide_first):
        words = [text.get_text() for text in figure.axes[panel].texts]
        assert len(cells(figure, panel)) == len(words) == len(kernel.tried)
        assert words.count("-") == sum(shape.time_us is None for shape in kernel.tried)


def test_a_cell_stands_where_its_shape_says() -> None:
    figure = heat_map(tuning())
    axes = figure.axes[0]
    down = [label.get_text() for label in axes.get_yticklabels()]
    across = [label.get_text() for label in axes.get_xticklabels()]
    assert down[:3] == ["4 x 8", "8 x 4", "8 x 8"]
    assert across == ["1 x 1", "1 x 2", "1 x 4", "2 x 1", "2 x 2", "4 x 1", "4 x 4"]
    at = {text.get_text(): text.get_position() for text in axes.texts}
    assert at["-"] == pytest.approx((across.index("4 x 4"), down.index("32 x 32")))
    assert tuning().kernels[0].best.down == "16 x 8"
    (frame,) = [patch for patch in frames(figure, 0) if to_hex(patch.get_edgecolor()) == CHOSEN]
    place = frame.get_x() + frame.get_width() / 2, frame.get_y() + frame.get_height() / 2
    assert place == pytest.approx((across.index("1 x 2"), down.index("16 x 8")))


def test_the_fastest_is_the_darkest_and_shapes_left_out_are_hatched() -> None:
    figure, kernel = heat_map(tuning()), tuning().kernels[0]
    colours = [to_hex(cell.get_facecolor()) for cell in cells(figure, 0)]
    assert colours[kernel.chosen] == STEPS[0][1]
    refused = [index for index, shape in enumerate(kernel.tried) if shape.left_out]
    assert refused
    assert {index for index, colour in enumerate(colours) if colour == LEFT_OUT} == set(refused)
    assert all(cells(figure, 0)[index].get_hatch() for index in refused)


def test_an_unbeaten_fixed_shape_has_one_frame() -> None:
    (frame,) = frames(heat_map(tuning()), -1)

    assert to_hex(frame.get_edgecolor()) == CHOSEN


def test_no_text_lies_outside_of_the_figure_or_on_another() -> None:
    figure = heat_map(tuning())
    svg(figure)
    for axes in figure.axes:
        boxes = [text.get_window_extent() for text in axes.texts]
        assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])
        for box in [*boxes, axes.title.get_window_extent(), axes.xaxis.label.get_window_extent()]:
            assert figure.bbox.x0 <= box.x0 <= box.x1 <= figure.bbox.x1


def test_the_terminal_shows_both_shapes_with_their_spread_and_where_the_picture_is() -> None:
    text = printed(tuning())
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert "gemm_naive 16 x 16, 1 x 1 16 x 8, 1 x 2 1.62x" in lines
    assert "128 x 10 over 784 32.6 (32.2-33.9) 20.0 (19.8-20.9)" in lines
    assert "sgd_update 256, 1 the same" in lines
    assert f"* gemm_naive 128 x 10 over 784: left out 32 x 32, 4 x 4: {REFUSED}" in lines
    assert lines[-1] == "Heat map: runs/tune-1/heat_map.svg; its numbers: runs/tune-1/tuning.json"


@pytest.mark.parametrize("width", [60, 80, 120])
def test_no_table_is_cut_off(width: int) -> None:
    assert "…" not in printed(tuning(), width)


@pytest.mark.parametrize(
    ("kernel", "said"),
    [
        (0, "16 x 8, 1 x 2: 20.0 us, 1.62x as fast as 16 x 16, 1 x 1"),
        (-1, "256, 1: 3.35 us, none is clearly faster"),
    ],
)
def test_a_kernel_s_outcome_is_one_line(kernel: int, said: str) -> None:
    assert outcome(tuning().kernels[kernel]) == said


def test_a_record_comes_back_as_it_was(tmp_path: Path) -> None:
    save_tuning(tuning(), tmp_path)
    assert load_tuning(tmp_path) == tuning()


def test_a_tuning_of_one_kernel_is_drawn_too() -> None:
    assert svg(heat_map(msgspec.structs.replace(tuning(), kernels=tuning().kernels[1:2])))
