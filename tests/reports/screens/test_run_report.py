from __future__ import annotations

import re
from pathlib import Path

import pytest
from msgspec.structs import replace

from ladder.machine.limits import PRIMITIVES
from ladder.records.limits_record import Chip, Limit, LimitsRecord
from reports.markdown.method_limits import EARLIER_US, limits_block
from tests.reports import sample

MOST_WORDS = 4400  # of 44 stages


@pytest.mark.parametrize("path", sorted(Path("results/reference").glob("**/report.md")), ids=str)
def test_a_recorded_report_is_read_in_a_few_screens(path: Path) -> None:
    shown = path.read_text(encoding="utf-8")
    if "studies" in path.parts:
        shown = re.sub(r"<details>.*?</details>", "", shown, flags=re.S)
    elif "torch" in path.parts:
        shown = re.sub(r"<details>.*?</details>", "", shown, flags=re.S)
        assert shown.index("](figures/ladder.svg)") < shown.index("## Rungs") < shown.index("## What to write")
    else:
        assert shown.index("](figures/ladder.svg)") < shown.index("| Stage |") < shown.index("## Rungs")
    assert len(re.findall(r"\w\S*", shown)) <= MOST_WORDS


def record(**medians: float) -> LimitsRecord:
    limits = [Limit(name, f"the {name}", "us", us, us, us) for name, us in medians.items()]
    return LimitsRecord(Chip(132, 60 << 20, 64 << 20), limits, {}, 4.5)


def test_every_earlier_time_is_of_a_primitive_in_us() -> None:
    assert set(EARLIER_US) <= {primitive.name for primitive in PRIMITIVES if primitive.unit == "us"}


def test_the_table_is_of_the_h200_alone() -> None:
    runs = [
        (f"results/reference/{gpu}/logistic", replace(sample.results(), limits=record(launch=us)))
        for gpu, us in (("h200", 3.5), ("rtx-3060", 9.0))
    ]
    assert limits_block(runs).startswith("| Primitive, us | Earlier | logistic |")
    assert "9.00" not in limits_block(runs)
    assert limits_block(runs[1:]) == "No run is recorded."
