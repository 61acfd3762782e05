from __future__ import annotations

import math

import pytest

from ladder.results import Spread
from reports import format


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0172, "17.2"),
        (0.00999, "9.99"),
        (0.009996, "10.0"),
        (0.09996, "100"),
        (1.2345, "1,234"),
        (0.0000123, "0.0123"),
        (0.0, "0.00"),
        (None, "-"),
        (math.nan, "-"),
        (math.inf, "-"),
    ],
)
def test_milliseconds_have_three_digits(seconds: float | None, text: str) -> None:
    assert format.milliseconds(seconds) == text


@pytest.mark.parametrize(
    ("value", "text"), [(2.14159, "2.14x"), (12.34, "12.3x"), (1234.5, "1,234x"), (0.0661, "0.066x"), (0.996, "0.996x")]
)
def test_ratios(value: float, text: str) -> None:
    assert format.ratio(value) == text


def test_the_ends_of_a_spread_have_the_decimals_of_its_middle() -> None:
    assert format.spread_milliseconds(Spread(0.0172, 0.01714, 0.0179)) == "17.2 (17.1-17.9)"
    assert format.spread_milliseconds(Spread(0.099, 0.0987, 0.1012)) == "99.0 (98.7-101.2)"


@pytest.mark.parametrize("missing", [None, math.nan, math.inf])
def test_a_missing_number_is_a_dash(missing: float | None) -> None:
    for write in (format.microseconds, format.ratio, format.percent, format.loss, format.duration):
        assert write(missing) == "-"
    assert format.spread_milliseconds(None) == "-"
    assert format.error(missing) == "not finite"


def test_percent_and_errors() -> None:
    assert format.percent(0.92218) == "92.22%"
    assert format.error(3.44e-7) == "3.4e-07"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.004, "0.00 s"),
        (0.31, "0.31 s"),
        (9.94, "9.9 s"),
        (9.96, "10 s"),
        (59.4, "59 s"),
        (59.6, "1 min 00 s"),
        (185, "3 min 05 s"),
        (7800, "2 h 10 min"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert format.duration(seconds) == text


def test_words() -> None:
    assert format.count(1, "run") == "1 run"
    assert format.count(60000, "image") == "60,000 images"
    assert format.listing(["a"]) == "a"
    assert format.listing(["a", "b", "c"]) == "a, b and c"
    assert format.size(9_912_422) == "9.9 MB"
    assert format.size(4_542) == "4.5 kB"
