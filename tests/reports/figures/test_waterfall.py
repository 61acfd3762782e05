from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from ladder.records.run import load
from reports.facts import numbers
from reports.facts.time_breakdown import chain
from reports.figures.style import OPERATION_COLOURS, THEME, Colour
from reports.figures.waterfall import bars
from tests.reports import sample

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


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.parent.name)
def test_the_numbers_of_recorded_waterfalls_add_up(path: Path) -> None:
    found = list(bars(chain(load(path))))
    for step in [bar for bar in found if bar.is_step][1:]:
        first = found.index(step)
        parts = list(itertools.takewhile(lambda bar: not bar.is_step, reversed(found[:first])))
        if parts:
            before = found[first - len(parts) - 1]
            ends = numbers.rounded(before.end, before.end), numbers.rounded(step.end, step.end)
            told = sum(float(bar.number.replace(",", "")) for bar in parts)
            assert ends[0] + told == pytest.approx(ends[1], abs=1e-9), step.name


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
        {*OPERATION_COLOURS.values()},
    )
    for names in groups:
        places = {name: lab(THEME[name][theme], seen) for name in names}
        for one, other in itertools.combinations(places, 2):
            assert np.linalg.norm(places[one] - places[other]) > 7.5, (one, other)
