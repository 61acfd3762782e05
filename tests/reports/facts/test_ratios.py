"""When a ratio of two stages' times is within the noise."""

import pytest

from ladder.records.statistics import GPU_SPREAD, HOST_SPREAD
from reports.facts.ratios import Times, ratio_of


def _times(*values_us: float, by_host: bool = False) -> Times:
    spread = HOST_SPREAD if by_host else GPU_SPREAD
    return Times(sorted(values_us)[len(values_us) // 2], values_us, spread=spread)


@pytest.mark.parametrize(
    ("base", "own", "is_noise"),
    [
        (_times(77.8, 95.8, by_host=True), _times(1.24), False),  # a second process of the parent changes no lead
        (_times(77.8, by_host=True), _times(1.24), False),
        (_times(50.0, by_host=True), _times(45.0), True),
        (_times(50.0), _times(45.0), False),
        (_times(50.0), _times(48.0), True),
        (_times(50.0, 50.0), _times(48.0, 48.0), False),
        (_times(62.0, 71.0, by_host=True), _times(74.0, 83.0, by_host=True), True),  # they do not overlap, by chance
        (_times(50.0, 50.0), _times(49.5, 49.5), True),  # less than 2 %
        (Times(50.0, []), _times(45.0), False),
    ],
)
def test_few_processes_decide_by_the_spread_of_recorded_ones(base: Times, own: Times, is_noise: bool) -> None:
    assert ratio_of(base, own).is_noise is is_noise
    assert ratio_of(own, base).is_noise is is_noise
