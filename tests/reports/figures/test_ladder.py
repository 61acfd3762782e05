from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from ladder.records.exactness import precision_class
from ladder.records.run import Results, load
from reports.facts.run_table import MARKS, disturbed_mark
from reports.facts.times import median_us
from reports.figures.chart import PAGE
from reports.figures.ladder import compared, dots, drawn, headline, reference_dots
from tests.reports import sample
from tests.reports.figures.svg import SVG, parse, words

RECORDED = sorted(Path("results/reference").glob("*/*/results.json.gz"))
RUN = sample.results()


def pixels(run: Results) -> dict[str, float]:
    """Where each stage's dot is drawn."""
    circles = [float(one.get("cx", "nan")) for one in parse(drawn(run).svg()).iter(f"{SVG}circle")]
    shown = dots(run)
    return dict(zip([dot.stage.name for dot in (*reference_dots(run, shown), *shown)], circles, strict=True))


def test_a_dot_a_rung_further_left_the_faster() -> None:
    at = pixels(RUN)
    assert list(at)[-4:] == ["naive", "async", "cublas", "bf16-gemm"]
    assert at["naive"] - at["async"] > 20  # twice as fast
    assert at["cublas"] < at["async"] < at["bf16-gemm"] < at["naive"]


def test_an_arrow_begins_at_the_parents_dot_and_is_dotted_within_the_noise() -> None:
    run = sample.replace_stage(RUN, "bf16-gemm", below="naive")
    at = pixels(run)
    arrows = [one for one in parse(drawn(run).svg()).iter(f"{SVG}polyline") if one.get("stroke-width") == "2"]
    starts = [float((one.get("points") or "").partition(",")[0]) for one in arrows]
    assert starts == pytest.approx([at["naive"], at["async"], at["naive"]])
    assert [one.get("stroke-dasharray") for one in arrows] == [None] * 3
    timing = next(stage for stage in RUN.stages if stage.name == "naive").timing
    same = sample.replace_stage(RUN, "async", timing=timing)
    assert [bool(dot.versus_parent and dot.versus_parent.is_noise) for dot in dots(same)] == [False, True, False, False]
    assert 'stroke-dasharray="2 3"' in drawn(same).svg()


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: f"{path.parent.parent.name}/{path.parent.name}")
def test_a_band_holds_the_parents_time_where_the_verdict_is_noise(path: Path) -> None:
    for dot in dots(load(path), is_page=True):
        if (over := dot.versus_parent) is not None:
            mark = compared(dot.step_us or 0.0, over, median_us(dot.parent), "ink", is_hollow=False)
            assert mark.is_noise is over.is_noise, dot.name
            assert mark.band[0] <= mark.value <= mark.band[1], dot.name


def test_references_within_a_tenth_share_a_line() -> None:
    run = load(Path("results/reference/h200/hidden-128-128-128/results.json.gz"))
    (told,) = (said for said in words(drawn(run).svg()) if said.startswith("fastest reference"))
    bf16, float32 = "bf16/fp16: jax-scan-bf16, 28.8 us", "float32: jax-scan, 31.1 us"
    assert told == f"fastest reference as exact as {bf16}; as exact as {float32}"


def test_a_headline_over_a_reference_in_gpu_time_leaves_the_first_rung_out() -> None:
    wide = load(Path("results/reference/h200/hidden-4096-4096-4096/results.json.gz"))
    shown = headline(dots(wide))
    assert shown.endswith(" as fast as jax-scan-bf16 in GPU time")


def test_the_headline_is_the_fastest_rung_over_the_best_reference_and_the_first() -> None:
    assert headline(dots(RUN)) == "cublas takes 36.8 us per step: 1.45x as fast as jax-scan, 2.33x as fast as naive"
    fast = next(stage for stage in RUN.stages if stage.name == "cublas").timing
    assert fast is not None
    half = replace(fast, epoch_s=replace(fast.epoch_s, median=0.01, min=0.01))
    faster = sample.replace_stage(RUN, "bf16-gemm", timing=half)
    assert headline(dots(faster)).startswith("bf16-gemm takes 21.4 us per step in bf16: within noise of jax-scan, ")


@pytest.mark.parametrize("path", [RECORDED[0], RECORDED[-1]], ids=lambda path: path.parent.name)
def test_the_file_has_the_lines_and_marks_of_the_page(path: Path) -> None:
    run = load(path)
    file, page = words(drawn(run).svg()), words(drawn(run, PAGE).svg())
    names = {dot.stage.name for dot in (*dots(run), *reference_dots(run, dots(run)))}
    precisions = {precision_class(dot.stage) for dot in dots(run)}
    lines = {text for text in file if text.startswith("fastest reference")}
    assert lines
    if precisions == {precision_class(dot.stage) for dot in dots(run, is_page=True)}:
        assert lines == {text for text in page if text.startswith("fastest reference")}
    for dot in dots(run):
        time = dot.us + dot.disturbed
        assert file[file.index(dot.stage.name) + 1] == time == page[page.index(dot.stage.name) + 1]
    is_marked = any(disturbed_mark(one) for one in run.stages if one.name in names)
    assert (MARKS in file) is is_marked
