"""What `check` found of invented stages: a right one, a wrong one and a crashed one."""

from __future__ import annotations

from msgspec.structs import replace

from ladder.records.checked import Award, Checked, Counts, Graded
from ladder.records.run import Check, Status
from tests.reports import sample


def right() -> Checked:
    """A stage of the user's, right as far as it can be judged, with all points."""
    checks = [
        Check("first update, weight[0]", 3.4e-7, 3.0e-6, passed=True),
        Check("loss curve", None, 0.9, passed=True, judged=False, note="it has one run"),
    ]
    graded = Graded("Fusion", 4, 4, [Award("first update", 4, 4, [])])
    return _checked("mine", checks, file="my stage.py", counts=Counts(12, 3.5, 1), graded=graded, below="cublas")


def wrong() -> Checked:
    """A stage of the ladder's that fails three checks, two of them for one reason; it printed hostile lines."""
    of_bias, of_weight = "first update, bias[0]", "first update, weight[0]"
    checks = [
        Check(of_weight, 1.0e-2, 3.0e-6, passed=False),
        Check(of_bias, 2.0e-2, 3.0e-6, passed=False),
        Check("test accuracy", None, 3.0e-3, passed=False),
    ]
    advice = dict.fromkeys((of_weight, of_bias), "look at the learning rate") | {"test accuracy": "see the loss first"}
    graded = Graded("Fusion", 0, 4, [Award("first update", 0, 4, [of_weight])])
    return _checked("cublas", checks, "failed", advice=advice, output=HOSTILE, graded=graded)


def crashed() -> Checked:
    """A stage without a check."""
    return _checked("cublas", [], "crashed", reason="IndexError: list index out of range", output="Traceback\n  line 3")


HOSTILE = "[red]markup[/] `code` <script>alert(1)</script>\n" + "    a line that is longer than any terminal, " * 6


def _checked(name: str, checks: list[Check], status: Status = "passed", **others: object) -> Checked:
    plain = Checked(name, name, "float32", "", sample.results().problem, status, "", checks, {}, "", "", 1.25)
    return replace(plain, **others)
