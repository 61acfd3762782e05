from __future__ import annotations

import math

import pytest

from ladder.records.run import Precision, Spread
from reports.facts import numbers


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
    assert numbers.milliseconds(seconds) == text


@pytest.mark.parametrize(
    ("value", "text"), [(2.14159, "2.14x"), (12.34, "12.3x"), (1234.5, "1,234x"), (0.0661, "0.066x"), (0.996, "0.996x")]
)
def test_ratios(value: float, text: str) -> None:
    assert numbers.ratio(value) == text


def test_the_ends_of_a_spread_have_the_decimals_of_its_middle() -> None:
    assert numbers.spread_milliseconds(Spread(0.0172, 0.01714, 0.0179)) == "17.2 (17.1-17.9)"
    assert numbers.spread_milliseconds(Spread(0.099, 0.0987, 0.1012)) == "99.0 (98.7-101.2)"


@pytest.mark.parametrize("missing", [None, math.nan, math.inf])
def test_a_missing_number_is_a_dash(missing: float | None) -> None:
    writers = (
        numbers.microseconds, numbers.ratio, numbers.percent, numbers.loss, numbers.duration, numbers.seconds,
        numbers.per_step, numbers.memory,
    )  # fmt: skip
    for write in writers:
        assert write(missing) == "-"
    assert numbers.spread_milliseconds(None) == "-"
    assert numbers.error(missing) == "not finite"


def test_percent_and_errors() -> None:
    assert numbers.percent(0.92218) == "92.22%"
    assert numbers.error(3.44e-7) == "3.4e-07"


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
    assert numbers.duration(seconds) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (9.0, "9"),
        (12.004, "12"),
        (9.5, "9.5"),
        (1, "1"),
        (1 / 468, "0.002"),
        (1 / 60000, "0.00002"),
        (0.0, "0"),
        (1500.0, "1,500"),
    ],
)
def test_launches_per_step(value: float, text: str) -> None:
    assert numbers.per_step(value) == text


@pytest.mark.parametrize(
    ("mib", "text"),
    [(709.56, "710 MiB"), (999.4, "999 MiB"), (1013.0, "0.99 GiB"), (1946.0, "1.9 GiB"), (143155.0, "140 GiB")],
)
def test_memory(mib: float, text: str) -> None:
    assert numbers.memory(mib) == text


def test_seconds_stay_seconds() -> None:
    assert [numbers.seconds(value) for value in (0.31, 9.96, 125.2, 1234.0)] == ["0.31 s", "10 s", "125 s", "1,234 s"]


def test_precisions_have_short_names() -> None:
    precisions: tuple[Precision, ...] = ("float32", "tf32", "bfloat16", "float16")
    assert [numbers.precision(name) for name in precisions] == ["float32", "tf32", "bf16", "fp16"]


def test_words() -> None:
    assert numbers.count(1, "run") == "1 run"
    assert numbers.count(60000, "image") == "60,000 images"
    assert numbers.listing(["a"]) == "a"
    assert numbers.listing(["a", "b", "c"]) == "a, b and c"
    assert numbers.size(9_912_422) == "9.9 MB"
    assert numbers.size(4_542) == "4.5 kB"
    assert numbers.size(16) == "16 B"


@pytest.mark.parametrize(
    ("value", "beside", "text", "change"),
    [
        (0.61, 17.4, "0.6", "+0.6"),
        (-17.31, 73.2, "-17.3", "-17.3"),
        (0.04, 17.4, "0.0", "0.0"),
        (-0.04, 17.4, "0.0", "0.0"),
        (1333.3, 1159.4, "1,333", "+1,333"),
        (-0.4, 427.0, "0", "0"),
        (20.0, 427.0, "20", "+20"),
        (math.nan, 17.4, "-", "-"),
    ],
)
def test_parts_have_the_decimals_of_their_whole(value: float, beside: float, text: str, change: str) -> None:
    assert numbers.aligned(value, beside) == text
    assert numbers.change(value, beside) == change


def test_shares_bandwidths_and_means() -> None:
    assert [numbers.share(value) for value in (0.714, 0.95, 0.016, 0.0, None)] == ["71.4%", "95%", "1.6%", "0%", "-"]
    assert [numbers.bandwidth(4e6, 40.0), numbers.bandwidth(1, 0.0)] == ["100 GB/s", "-"]
    assert [numbers.mean_count(value) for value in (8.0, 5.3846, 8 + 1 / 468, 20.0)] == ["8", "5.385", "8.002", "20"]
