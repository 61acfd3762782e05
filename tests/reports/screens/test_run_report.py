from __future__ import annotations

import re
from pathlib import Path

import pytest

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
