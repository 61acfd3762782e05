"""The screen of `advise`; its words have a golden file."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from reports.terminal.print_advice import print_advice
from tests.reports.facts.test_advice import GRID, GRID_BF16, outlooks, small
from tests.reports.terminal.screens import screen, too_wide


@pytest.mark.parametrize("width", [60, 80, 140])
def test_it_fits_the_terminal_and_one_screen(width: int) -> None:
    text = screen(lambda console: print_advice(outlooks(*small(), GRID, GRID_BF16), console), width)
    assert too_wide(text, width) == []
    assert "persistent-grid" in text
    assert width < 80 or len(text.splitlines()) <= 32


def test_measured_times_stand_beside_the_expected() -> None:
    stages = [replace(stage, measured_us=123.0) for stage in small()]
    text = screen(lambda console: print_advice(outlooks(*stages), console), 100)
    assert "measured" in text
    assert text.count("123") >= 4
    assert "measured" not in screen(lambda console: print_advice(outlooks(*small()), console), 100).split("\n\n")[1]
