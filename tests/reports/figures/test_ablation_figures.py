from __future__ import annotations

from pathlib import Path

import pytest

from ladder.records.run import Group, load
from reports.facts.ablations import ablation
from reports.figures.ablation_figures import ablation_figure
from tests.reports.figures.svg import SVG, assert_texts_apart, parse, words

POINTS: list[tuple[Group, Path]] = [
    ("memory" if path.parent.parent.name == "allocators" else "data", path)
    for study in ("allocators", "data-path")
    for path in sorted(Path("results/reference").glob(f"*/studies/{study}/*/results.json"))
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
