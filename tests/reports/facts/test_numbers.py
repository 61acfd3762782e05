from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from ladder.records.run import Spread
from reports.facts import numbers


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


@pytest.mark.parametrize(
    ("write", "texts"),
    [
        (
            numbers.milliseconds,
            {0.0172: "17.2", 0.00999: "9.99", 0.009996: "10.0", 0.09996: "100", 1.2345: "1,234", 0.0000123: "0.0123",
             0.0: "0.00", None: "-", math.nan: "-", math.inf: "-"},
        ),
        (numbers.ratio, {2.14159: "2.14x", 12.34: "12.3x", 1234.5: "1,234x", 0.0661: "0.066x", 0.996: "0.996x"}),
        (numbers.percent, {0.92218: "92.22%"}),
        (numbers.error, {3.44e-7: "3.4e-07"}),
        (
            numbers.duration,
            {0.004: "0.00 s", 0.31: "0.31 s", 9.94: "9.9 s", 9.96: "10 s", 59.4: "59 s", 59.6: "1 min 00 s",
             185: "3 min 05 s", 7800: "2 h 10 min"},
        ),
        (
            numbers.per_step,
            {9.0: "9", 12.004: "12", 9.5: "9.5", 1: "1", 1 / 468: "0.002", 1 / 60000: "0.00002", 0.0: "0",
             1500.0: "1,500"},
        ),
        (
            numbers.memory,
            {709.56: "710 MiB", 999.4: "999 MiB", 1013.0: "0.99 GiB", 1946.0: "1.9 GiB", 143155.0: "140 GiB"},
        ),
        (numbers.seconds, {0.31: "0.31 s", 9.96: "10 s", 125.2: "125 s", 1234.0: "1,234 s"}),
        (numbers.precision, {"float32": "float32", "tf32": "tf32", "bfloat16": "bf16", "float16": "fp16"}),
        (numbers.listing, {("a",): "a", ("a", "b", "c"): "a, b and c"}),
        (numbers.size, {9_912_422: "9.9 MB", 4_542: "4.5 kB", 16: "16 B"}),
        (numbers.share, {0.714: "71.4%", 0.95: "95%", 0.016: "1.6%", 0.0: "0%", None: "-"}),
        (numbers.mean_count, {8.0: "8", 5.3846: "5.385", 8 + 1 / 468: "8.002", 20.0: "20"}),
    ],
)  # fmt: skip
def test_each_kind_of_number_has_its_digits(write: Callable[[Any], str], texts: dict[Any, str]) -> None:
    assert {value: write(value) for value in texts} == texts


def test_counts_bandwidths_and_parts_of_a_whole() -> None:
    assert [numbers.count(1, "run"), numbers.count(60000, "image")] == ["1 run", "60,000 images"]
    assert [numbers.bandwidth(4e6, 40.0), numbers.bandwidth(1, 0.0)] == ["100 GB/s", "-"]
    for value, beside, text, change in (
        (0.61, 17.4, "0.6", "+0.6"), (-17.31, 73.2, "-17.3", "-17.3"), (0.04, 17.4, "0.0", "0.0"),
        (-0.04, 17.4, "0.0", "0.0"), (1333.3, 1159.4, "1,333", "+1,333"), (-0.4, 427.0, "0", "0"),
        (20.0, 427.0, "20", "+20"), (math.nan, 17.4, "-", "-"),
    ):  # fmt: skip
        assert (numbers.aligned(value, beside), numbers.change(value, beside)) == (text, change)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.5, "10 s"), (26.0, "30 s"), (54.0, "50 s"), (56.0, "1 min"), (130.0, "2 min"), (3400.0, "57 min"),
     (4100.0, "1 h 10 min")],
)  # fmt: skip
def test_an_estimate_of_a_time_is_rough(seconds: float, text: str) -> None:
    assert numbers.rough_duration(seconds) == text
