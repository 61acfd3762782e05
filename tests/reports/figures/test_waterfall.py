from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from ladder.records.profile import Split
from ladder.records.run import Group, Results, all_results, load
from reports.facts.ablations import ablation
from reports.facts.time_breakdown import chain
from reports.figures.ablation_figures import ablation_figure
from reports.figures.waterfall import BAR_COLOURS, KEY, bars, drawn
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
            assert after.end == pytest.approx(before.end, abs=0.02 * before.end)  # a rest below 1 % is left out
        else:
            assert after.begin == pytest.approx(before.end)


def test_kernels_are_told_by_operation_and_small_changes_are_added_up() -> None:
    names = [bar.name for bar in bars(chain(RUN))]
    change = names[names.index("async") + 1 : names.index("cublas")]
    assert "products" in change
    assert "kernels" not in change
    assert change.count("smaller changes") <= 1
    assert set(change) <= set(BAR_COLOURS)


def test_bars_are_as_long_as_their_change_and_labelled_with_it() -> None:
    found = list(bars(chain(RUN)))
    text = drawn(RUN, chain(RUN)).svg()
    boxes = [one for one in parse(text).iter(f"{SVG}rect") if "%" not in (one.get("width") or "")][len(KEY) :]
    assert len(boxes) == len(found)
    scale = float(boxes[0].get("width", "nan")) / found[0].end
    for bar, one in zip(found, boxes, strict=True):
        assert float(one.get("width", "nan")) == pytest.approx(max(abs(bar.end - bar.begin) * scale, 1), abs=0.06)
        assert (one.get("opacity") is not None) == (bar.end > bar.begin and not bar.is_step)
    assert {"85.5", "-19.9", "42.7", "36.8"} <= set(words(text))


def test_a_change_within_the_noise_has_no_parts_and_says_so() -> None:
    timing = next(stage for stage in RUN.stages if stage.name == "naive").timing
    assert timing is not None
    found = list(bars(chain(sample.replace_stage(RUN, "async", timing=timing))))
    assert [bar.name for bar in found[:2]] == ["naive", "async"]
    assert found[1].remark == "within noise of naive"


def test_a_change_of_precision_is_named_where_it_happens() -> None:
    run = sample.replace_stage(RUN, "cublas", precision="tf32")
    assert [bar.remark for bar in bars(chain(run)) if bar.is_step] == ["", "", "from here on in tf32"]
    assert "from here on in tf32" in words(drawn(run, chain(run)).svg())


def test_no_text_lies_on_another_or_outside() -> None:
    # A rung whose parts reach far to both sides, and below zero.
    run = sample.replace_stage(RUN, "async", profiles=[profile(Split(1.0, 0.0, 4.0, 900.0, 0.1), own_kernels())])
    for one in (RUN, run):
        assert_texts_apart(drawn(one, chain(one)).svg())


def test_a_stage_may_be_called_like_a_part() -> None:
    run = sample.replace_stage(sample.replace_stage(RUN, "async", name="kernels"), "cublas", below="kernels")
    assert [bar.is_step for bar in bars(chain(run))] == [bar.is_step for bar in bars(chain(RUN))]
    assert drawn(run, chain(run)).svg().count("<rect") == drawn(RUN, chain(RUN)).svg().count("<rect")


def fastest(run: Results) -> str:
    rungs = {stage.name: stage.timing.step_us for stage in run.stages if stage.timing and stage.group != "reference"}
    return min(rungs, key=lambda name: rungs[name])


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.parent.name)
def test_recorded_waterfalls_end_at_the_fastest_rung(path: Path) -> None:
    run = load(path)
    assert [bar.name for bar in bars(chain(run))][-1] == fastest(run)
    assert_texts_apart(drawn(run, chain(run)).svg())


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
