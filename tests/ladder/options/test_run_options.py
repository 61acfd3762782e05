"""The options of a run as the problem and the settings have them."""

from __future__ import annotations

import pytest

from ladder.options.run_options import RunOptions


@pytest.mark.parametrize(("asked", "every", "validated"), [(None, 0, 0), (0.9, 0, 1), (0.9, 5, 5)])
def test_the_way_to_an_accuracy_takes_validation(asked: float | None, every: int, validated: int) -> None:
    options = RunOptions(target_accuracy=asked, validate_every=every)
    assert (options.problem().validate_every, options.settings(None).target_accuracy) == (validated, asked)
