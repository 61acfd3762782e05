from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from ladder.records.exactness import precision_class
from ladder.records.run import Results, load
from reports.facts.run_table import MARKS, disturbed_mark
from reports.figures.chart import FILE, PAGE, PHONE, ChartLayout
from reports.figures.ladder import FARTHEST, REFERENCES, dots, drawn, headline, reference_dots
from tests.reports import sample
from tests.reports.figures.svg import SVG, parse, words

RECORDED = sorted(Path("results/reference").glob("*/*/results.json.gz"))
RUN = sample.results()
NO_RUNG = sample.synthetic_results()


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


@pytest.mark.parametrize("layout", [FILE, PAGE, PHONE], ids=["file", "page", "phone"])
def test_each_speedup_names_the_parent_and_noise_claims_none(layout: ChartLayout) -> None:
    run = sample.replace_stage(RUN, "bf16-gemm", below="naive")
    timing = next(stage for stage in RUN.stages if stage.name == "naive").timing
    run = sample.replace_stage(run, "async", timing=timing)
    shown = words(drawn(run, layout).svg())[not layout.is_page :]
    assert [word for word in shown if " over " in word or word.startswith("as fast as")] == [
        "1.00x over naive, within noise", "2.33x over async", "1.86x over naive"
    ]  # fmt: skip


def test_rungs_stand_under_the_way_in_which_their_kernels_reach_the_gpu() -> None:
    shown = words(drawn(RUN).svg())
    order = [shown.index(word) for word in ("The host launches every kernel", "naive", "async")]
    assert order == sorted(order)
    assert shown.index("One CUDA graph launches an epoch's kernels") < shown.index("cublas")


def test_references_on_the_rungs_device_stand_above_them_as_hollow_dots() -> None:
    shown = dots(RUN)
    names = [dot.stage.name for dot in reference_dots(RUN, shown)]
    assert names == [one.name for one in RUN.stages if one.group == "reference" and one.device == "gpu"]
    hollow = ["stroke-width" in one.attrib for one in parse(drawn(RUN).svg()).iter(f"{SVG}circle")]
    assert hollow == [True] * len(names) + [False] * len(shown)
    text = words(drawn(RUN).svg())
    assert text.index(REFERENCES) < text.index(names[0]) < text.index("naive")
    description = parse(drawn(RUN).svg()).findtext(f"{SVG}desc") or ""
    assert "naive 85.5, async 42.7, cublas 36.8, bf16-gemm 45.9. Fastest reference: jax-scan 53.4 us." in description


def test_a_reference_that_would_squeeze_the_axis_is_left_out() -> None:
    run = load(RECORDED[-1])
    assert not run.problem.hidden
    assert "torch-dataloader" not in drawn(run).svg()
    assert pixels(run)["torch-eager"] > pixels(run)["naive"]


def test_the_headline_is_the_fastest_rung_over_the_best_reference_and_the_first() -> None:
    assert headline(dots(RUN)) == "cublas takes 36.8 us per step: 1.45x over jax-scan, 2.33x over naive"
    fast = next(stage for stage in RUN.stages if stage.name == "cublas").timing
    assert fast is not None
    half = replace(fast, epoch_s=replace(fast.epoch_s, median=0.01, min=0.01))
    faster = sample.replace_stage(RUN, "bf16-gemm", timing=half)
    assert headline(dots(faster)).startswith("bf16-gemm takes 21.4 us per step in bf16: 2.50x over jax-scan, ")


def test_each_precision_has_the_line_of_its_reference() -> None:
    assert "fastest reference: jax-scan, float32, 53.4 us" in words(drawn(RUN).svg())
    # A bfloat16 reference does not count for the float32 rungs.
    run = sample.replace_stage(RUN, "jax-scan", status="failed", reason="loss curve")
    slow = next(stage.timing for stage in RUN.stages if stage.name == "torch-eager")
    assert slow is not None
    far = slow.epoch_s.median * FARTHEST
    spread = replace(slow.epoch_s, median=far, min=far, max=far)
    run = sample.replace_stage(run, "torch-eager", timing=replace(slow, epoch_s=spread))
    assert "torch-eager" not in pixels(run)
    lines = [text for text in words(drawn(run).svg()) if text.startswith("fastest reference")]
    assert lines[0] == "fastest reference for float32: torch-eager, float32, 4,274 us (right of the axis)"
    assert [line.partition(":")[0] for line in lines[1:]] == ["fastest reference for bf16/fp16"]


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


def test_without_a_timed_rung_the_references_are_the_dots() -> None:
    assert list(pixels(NO_RUNG)) == ["numpy"]
    shown = words(drawn(NO_RUNG).svg())
    assert shown[0].startswith("No rung was timed; numpy takes ")
    assert "The host launches every kernel" not in shown


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.parent.name)
def test_the_fastest_rung_of_a_recorded_run_is_in_its_picture(path: Path) -> None:
    run = load(path)
    left_out = ("reference", "memory", "data", "shapes")
    timed = {stage.name: stage.timing.step_us for stage in run.stages if stage.timing and stage.group not in left_out}
    assert min(timed, key=timed.__getitem__) in pixels(run)
