"""`docs/method.md` gives the limits that the code has."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

from ladder.results import Precision
from ladder.verify import LIMITS, TEST_ACCURACY, TRAINING_ACCURACY

METHOD = (Path(__file__).parent.parent / "docs" / "method.md").read_text(encoding="utf-8")
HEADER = "| precision | first update | scale | epoch from zeros | final parameters | loss curve |"


def test_every_precision_has_its_limits_in_the_document() -> None:
    _, table = METHOD.split(HEADER)
    rows = [line.strip("|").split("|") for line in table.split("\n\n")[0].splitlines()[2:]]
    told = {name.strip(): tuple(tuple(map(float, cell.split(","))) for cell in cells) for name, *cells in rows}
    assert told == {
        precision: (
            limits.first_update,
            limits.update_scale,
            limits.from_zero,
            (limits.final_params,),
            limits.loss_curve,
        )
        for precision, limits in LIMITS.items()
    }
    assert set(told) == set(get_args(Precision))


def test_the_limits_of_the_accuracies_are_in_the_document() -> None:
    ((logistic, mlp),) = re.findall(
        r"Test accuracy may differ by ([\d.]+) for logistic and ([\d.]+) for an MLP", METHOD
    )
    assert (float(logistic), float(mlp)) == TEST_ACCURACY
    (training,) = re.findall(r"training accuracy by ([\d.]+)\.\s", METHOD)
    assert float(training) == TRAINING_ACCURACY
