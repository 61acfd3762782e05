from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from ladder.records.profile import Split
from ladder.records.run import Group, Results, all_results, load
from reports.facts import numbers
from reports.facts.ablations import ablation
from reports.facts.time_breakdown import chain
from reports.figures.ablation_figures import ablation_figure
from reports.figures.chart import FILE, PHONE, ChartLayout
from reports.figures.style import OPERATION_COLOURS, PART_COLOURS, THEME, Colour
from reports.figures.waterfall import KEYS, bars, drawn
from tests.reports import sample
from tests.reports.figures.svg import SVG, assert_texts_apart, parse, words
from tests.reports.profiles import own_kernels, profile

RUN = sample.results()
RECORDED = sorted(Path("results/reference").glob("*/*/results.json.gz"))


def test_the_bars_lead_from_the_first_time_to_the_fastest_without_a_gap() -> None:
    found = list(bars(chain(RUN)))
    assert [bar.name for bar in found if bar.is_step] == ["naive", "async", "cublas"]
    for before, after in itertools.pairwise(found):
        if after.is_step:
            assert after.begin == 0
            assert after.end == pytest.approx(before.end, abs=0.05)  # what rounds to nothing has no bar
        else:
            assert after.begin == pytest.approx(before.end)


def test_kernels_are_told_by_operation_and_small_changes_are_added_up() -> None:
    names = [bar.name for bar in bars(chain(RUN))]
    change = names[names.index("async") + 1 : names.index("cublas")]
    assert "products" in change
    assert "kernels" not in change
    assert change.count("smaller changes") <= 1


def test_bars_are_as_long_as_their_change_and_labelled_with_it() -> None:
    found = list(bars(chain(RUN)))
    text = drawn(RUN, chain(RUN)).svg()
    boxes = [one for one in parse(text).iter(f"{SVG}rect") if one.get("height") not in ("100%", "11", "9.5")]
    assert len(boxes) == len(found)
    scale = float(boxes[0].get("width", "nan")) / found[0].end
    for bar, one in zip(found, boxes, strict=True):
        is_frame = "stroke-width" in one.attrib
        width = float(one.get("width", "nan")) + 1.5 * is_frame
        assert width == pytest.approx(max(abs(bar.end - bar.begin) * scale, 2 if is_frame else 1), abs=0.06)
        assert is_frame == (bar.end > bar.begin and not bar.is_step)
    assert {"85.5", "-19.9", "42.7", "36.8"} <= set(words(text))


def test_time_saved_and_added_have_a_key_and_added_time_is_outlined() -> None:
    shown = words(drawn(RUN, chain(RUN)).svg())
    assert [word for word in shown if word in {key.words for key in KEYS}] == [
        "a rung's whole step", "time saved", "time added"
    ]  # fmt: skip
    assert shown[0] == "85.5 to 36.8 us per step: async saves most, 19.9 us of host waiting"


def test_a_change_within_the_noise_has_no_parts_and_says_so() -> None:
    timing = next(stage for stage in RUN.stages if stage.name == "naive").timing
    assert timing is not None
    found = list(bars(chain(sample.replace_stage(RUN, "async", timing=timing))))
    assert [bar.name for bar in found[:2]] == ["naive", "async"]
    assert found[1].remark == "within noise of naive"


def test_a_change_of_precision_is_named_where_it_happens() -> None:
    run = sample.replace_stage(RUN, "cublas", precision="tf32")
    assert [bar.remark for bar in bars(chain(run)) if bar.is_step] == ["", "", "now in tf32"]
    assert "now in tf32" in words(drawn(run, chain(run)).svg())


@pytest.mark.parametrize("layout", [FILE, PHONE], ids=["wide", "phone"])
def test_no_text_lies_on_another_or_outside(layout: ChartLayout) -> None:
    # A rung whose parts reach far to both sides, and below zero.
    run = sample.replace_stage(RUN, "async", profiles=[profile(Split(1.0, 0.0, 4.0, 900.0, 0.1), own_kernels())])
    for one in (RUN, run):
        assert_texts_apart(drawn(one, chain(one), layout).svg())


def test_a_stage_may_be_called_like_a_part() -> None:
    run = sample.replace_stage(sample.replace_stage(RUN, "async", name="kernels"), "cublas", below="kernels")
    assert [bar.is_step for bar in bars(chain(run))] == [bar.is_step for bar in bars(chain(RUN))]
    assert drawn(run, chain(run)).svg().count("<rect") == drawn(RUN, chain(RUN)).svg().count("<rect")


def fastest(run: Results) -> str:
    rungs = {stage.name: stage.timing.step_us for stage in run.stages if stage.timing and stage.group != "reference"}
    return min(rungs, key=lambda name: rungs[name])


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.parent.name)
def test_the_numbers_of_recorded_waterfalls_add_up(path: Path) -> None:
    found = list(bars(chain(load(path))))
    for step in [bar for bar in found if bar.is_step][1:]:
        first = found.index(step)
        parts = list(itertools.takewhile(lambda bar: not bar.is_step, reversed(found[:first])))
        if parts:
            before = found[first - len(parts) - 1]
            ends = numbers.rounded(before.end, before.end), numbers.rounded(step.end, before.end)
            told = sum(float(bar.number.replace(",", "")) for bar in parts)
            assert ends[0] + told == pytest.approx(ends[1], abs=1e-9), step.name


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.parent.name)
def test_recorded_waterfalls_end_at_the_fastest_rung(path: Path) -> None:
    run = load(path)
    assert [bar.name for bar in bars(chain(run))][-1] == fastest(run)


POINTS: list[tuple[Group, Path]] = [
    ("memory" if path.parent.parent.name == "allocators" else "data", path)
    for study in ("allocators", "data-path")
    for path in all_results(Path("results/reference"), f"*/studies/{study}/*")
]


@pytest.mark.parametrize(("group", "path"), POINTS, ids=lambda one: one.parent.name if isinstance(one, Path) else one)
def test_recorded_ablations_show_every_rung_with_its_parts(group: Group, path: Path) -> None:
    run = load(path)
    text = ablation_figure(run, group).svg()
    assert_texts_apart(text)
    found = ablation(run, group)
    shown = words(text)
    assert [word for word in shown if word in {one.stage.name for one in found}] == [one.stage.name for one in found]
    bars = [float(one.get("width", "nan")) for one in parse(text).iter(f"{SVG}rect") if one.get("height") == "18"]
    whole = [sum(bars[index : index + 5]) for index in range(0, len(bars), 5)]
    for length, one in zip(whole, found, strict=True):
        assert length / max(whole) == pytest.approx(
            sum(one.parts_us.values()) / max(sum(other.parts_us.values()) for other in found), abs=0.002
        )


# Machado, Oliveira, Fernandes: A physiologically-based model for simulation of color vision deficiency, TVCG 2009.
SEEN_BY = {
    "all cones": np.eye(3),
    "no long ones": [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]],
    "no middle ones": [[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]],
    "no short ones": [[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]],
}
TO_XYZ = np.array([[0.434, 0.376, 0.190], [0.213, 0.715, 0.072], [0.018, 0.109, 0.873]])  # by D65's white


def lab(colour: str, seen: object) -> NDArray[np.float64]:
    """A colour in CIELAB, as eyes of one kind see it."""
    srgb = np.array([int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)])
    linear = np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)
    x, y, z = np.cbrt(np.maximum(TO_XYZ @ np.clip(np.asarray(seen) @ linear, 0, 1), 0.01))
    return np.array([116 * y, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize("seen", SEEN_BY.values(), ids=SEEN_BY)
def test_bars_of_different_colours_look_different_to_the_colour_blind(seen: object, theme: int) -> None:
    groups: tuple[set[Colour], ...] = (
        {"step", "saved", "added"},
        {*PART_COLOURS.values(), *OPERATION_COLOURS.values()},
    )
    for names in groups:
        places = {name: lab(THEME[name][theme], seen) for name in names}
        for one, other in itertools.combinations(places, 2):
            assert np.linalg.norm(places[one] - places[other]) > 7.5, (one, other)
