"""When a ratio of two stages' times is within the noise."""

import pytest

from reports.facts.ratios import Times, ratio_of


def _times(*values_us: float, by_host: bool = False) -> Times:
    return Times(sorted(values_us)[len(values_us) // 2], values_us, is_launched_by_host=by_host)


@pytest.mark.parametrize(
    ("base", "own", "is_noise"),
    [
        (_times(77.8, 95.8, by_host=True), _times(1.24), False),  # a second process of the parent changes no lead
        (_times(77.8, by_host=True), _times(1.24), False),
        (_times(50.0, by_host=True), _times(45.0), True),
        (_times(50.0), _times(45.0), False),
        (_times(44.0, 95.8, by_host=True), _times(45.0), True),  # overlap
        (_times(50.0, 50.0), _times(49.5, 49.5), True),  # less than 2 %
    ],
)
def test_few_processes_decide_by_the_assumed_spread_and_by_overlap(base: Times, own: Times, is_noise: bool) -> None:
    assert ratio_of(base, own).is_noise is is_noise
