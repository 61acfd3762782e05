"""Problems that do not fit the last layer's cluster are refused with a reason and the closest rung."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from common.problem import Problem
from stages.streamed import last_layer, last_layer_bf16
from stages.streamed.last_layer_head import LastLayerHead

FITS = Problem(inputs=784, classes=10, hidden=(4096,), batch_size=32)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({}, ""),
        ({"hidden": ()}, "Needs at least one hidden layer."),
        ({"classes": 33}, "33 classes exceed the limit of 32."),
        (
            {"hidden": (16_388,)},
            "Batch size 32 with 16,388 units before the classes needs 218,528 bytes a block; "
            "the limits are 229,376 bytes a block and 16,384 units.",
        ),
    ],
    ids=str,
)
def test_a_misfit_names_its_limit_and_the_closest_rung(changed: dict[str, Any], reason: str) -> None:
    problem = replace(FITS, **changed)
    for module, closest in ((last_layer, "streamed"), (last_layer_bf16, "streamed-bf16")):
        told = f"{reason} Closest rung here: `{closest}`." if reason else None
        assert module.STAGE.misfit(problem, steps=468) == told


def test_a_gemm_that_pads_no_widths_needs_units_in_fours() -> None:
    assert (
        LastLayerHead.misfit(replace(FITS, hidden=(30,)), 468) == "30 units before the classes are not a multiple of 4."
    )
    assert not last_layer.STAGE.misfit(replace(FITS, hidden=(30,)), steps=468)
